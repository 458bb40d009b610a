//! Which files a port accepts, and what happens when they change.
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::{
    MetricSource,
    metrics::{MetricsForm, MetricsText},
};
use rustls::{
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::danger::ClientCertVerifier,
};
use vocabulary::Error;

use super::{server_config::RevocationLists, *};
use crate::port::Reload;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/port/tls/test_files").join(name)
}

fn files() -> TlsOptions {
    TlsOptions {
        certificate: file("server.pem"),
        key: file("server.key"),
        client_roots: Some(file("root.pem")),
        client_rules: ClientCertificateRules::default(),
    }
}

fn port(options: TlsOptions) -> Result<Arc<TlsPort>, Error> {
    TlsPort::new("HTTP", options, TlsProtocol::Http1)
}

#[test]
fn an_unusable_certificate_is_named() {
    let refusal = |options| port(options).unwrap_err().message;
    let missing = refusal(TlsOptions { certificate: file("none.pem"), ..files() });
    assert!(missing.starts_with("server certificate '") && missing.contains("none.pem' cannot be used: "));
    let no_key = refusal(TlsOptions { key: file("root.pem"), ..files() });
    assert!(no_key.starts_with("server key '") && no_key.contains("root.pem' cannot be used: "), "{no_key}");
    let wrong_key = refusal(TlsOptions { key: file("client.key"), ..files() });
    assert!(wrong_key.contains("cannot be used together"), "{wrong_key}");
    let no_root = refusal(TlsOptions { client_roots: Some(file("server.key")), ..files() });
    assert!(no_root.ends_with("it holds no certificate"), "{no_root}");
}

fn client_verifier(
    roots: &Path,
    rules: &ClientCertificateRules,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let lists = RevocationLists::read(&rules.revocation_lists)?;
    server_config::client_verifier(roots, rules, &lists)
}

/// How a port with these roots and rules verifies the certificate of a client.
fn verify(roots: &str, rules: &ClientCertificateRules, certificate: &str) -> Result<(), rustls::Error> {
    let verifier = client_verifier(&file(roots), rules).unwrap();
    let certificate = CertificateDer::from_pem_file(file(certificate)).unwrap();
    verifier.verify_client_cert(&certificate, &[], UnixTime::now()).map(drop)
}

fn lists(names: &[&str]) -> ClientCertificateRules {
    let revocation_lists = names.iter().map(|name| file(name)).collect();
    ClientCertificateRules { revocation_lists, allows_version_1: false }
}

#[test]
fn certificates_of_version_1_need_the_permission_of_the_operator() {
    let none = ClientCertificateRules::default();
    assert!(verify("root-v1.pem", &none, "client-v1.pem").is_err());
    let allowed = ClientCertificateRules { allows_version_1: true, ..none };
    assert_eq!(verify("root-v1.pem", &allowed, "client-v1.pem"), Ok(()));
    assert_eq!(verify("root.pem", &allowed, "client.pem"), Ok(()));
}

#[test]
fn a_revoked_certificate_is_refused() {
    use rustls::CertificateError::{ExpiredRevocationList, Revoked, UnknownRevocationStatus};
    let of_list = |rules: &ClientCertificateRules, name| verify("root-with-list.pem", rules, name);
    assert_eq!(of_list(&lists(&[]), "client-revoked.pem"), Ok(()), "no list is given");
    assert_eq!(of_list(&lists(&["empty.crl.pem"]), "client-revoked.pem"), Ok(()));
    let current = lists(&["revoked.crl.pem"]);
    assert_eq!(of_list(&current, "client-kept.pem"), Ok(()));
    assert_eq!(of_list(&current, "client-revoked.pem"), Err(Revoked.into()));
    let expired = of_list(&lists(&["expired.crl.pem"]), "client-kept.pem");
    assert!(
        matches!(
            expired,
            Err(rustls::Error::InvalidCertificate(
                ExpiredRevocationList | rustls::CertificateError::ExpiredRevocationListContext { .. }
            ))
        ),
        "{expired:?}"
    );
    // The list of another issuer says nothing.
    assert_eq!(verify("root.pem", &current, "client.pem"), Err(UnknownRevocationStatus.into()));
}

#[test]
fn an_unusable_revocation_list_is_named() {
    let refusal = |rules| client_verifier(&file("root.pem"), &rules).unwrap_err().message;
    let missing = refusal(lists(&["revoked.crl.pem", "none.pem"]));
    assert!(
        missing.starts_with("revocation list '") && missing.contains("none.pem' cannot be used: "),
        "{missing}"
    );
    let empty = refusal(lists(&["root.pem"]));
    assert!(empty.ends_with("root.pem' cannot be used: it holds no revocation list"), "{empty}");
    // They would not be looked up.
    let both = refusal(ClientCertificateRules { allows_version_1: true, ..lists(&["revoked.crl.pem"]) });
    assert!(
        both.starts_with("client certificates of version 1 cannot be allowed together with revocation"),
        "{both}"
    );
}

#[test]
fn a_renewed_revocation_list_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list.pem");
    let put = |source: &str| {
        fs::copy(file(source), directory.path().join("new")).unwrap();
        fs::rename(directory.path().join("new"), &list).unwrap();
    };
    put("empty.crl.pem");
    let client_rules =
        ClientCertificateRules { revocation_lists: vec![list.clone()], allows_version_1: false };
    let port =
        port(TlsOptions { client_roots: Some(file("root-with-list.pem")), client_rules, ..files() }).unwrap();
    let first = port.acceptor().config().clone();
    put("revoked.crl.pem");
    port.reload_if_changed();
    assert!(!Arc::ptr_eq(&first, port.acceptor().config()));
}

#[test]
fn renewed_files_are_used_and_broken_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let put = |source: &str, path: &Path| {
        fs::copy(file(source), at("new")).unwrap();
        fs::rename(at("new"), path).unwrap();
    };
    put("server.pem", &at("crt"));
    put("server.key", &at("key"));
    let options = TlsOptions {
        certificate: at("crt"),
        key: at("key"),
        client_roots: None,
        client_rules: ClientCertificateRules::default(),
    };
    let port = port(options).unwrap();
    let first = port.acceptor().config().clone();
    let is_first = || Arc::ptr_eq(&first, port.acceptor().config());
    port.reload_if_changed();
    assert!(is_first(), "nothing has changed");
    // The certificate comes before its key.
    put("client.pem", &at("crt"));
    port.reload_if_changed();
    assert!(is_first(), "the key does not belong to the new certificate");
    put("client.key", &at("key"));
    port.reload_if_changed();
    assert!(!is_first());
}

#[test]
fn the_metrics_tell_when_the_certificate_of_each_port_expires() {
    let client_rules = lists(&["revoked.crl.pem", "expired.crl.pem"]);
    let ports = vec![port(TlsOptions { client_rules, ..files() }).unwrap()];
    let written = |metrics: &CertificateMetrics| {
        let mut text = MetricsText::new(MetricsForm::Prometheus);
        metrics.append_to(&mut text);
        text.finish()
    };
    let text = written(&CertificateMetrics { ports });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[2], r#"nereid_tls_certificate_expiry_seconds{port="HTTP"} 4948832408"#);
    assert_eq!(lines[5], r#"nereid_tls_revocation_list_expiry_seconds{port="HTTP"} 1738368000"#);
    assert_eq!(written(&CertificateMetrics::default()), "");
}
