//! Which files a port accepts, and what happens when they change.
use std::{fs, path::Path};

use inference::metrics::MetricsForm;

use super::*;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tls/test_files").join(name)
}

fn files() -> TlsOptions {
    TlsOptions {
        certificate: file("server.pem"),
        key: file("server.key"),
        client_roots: Some(file("root.pem")),
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
    let options = TlsOptions { certificate: at("crt"), key: at("key"), client_roots: None };
    let port = port(options).unwrap();
    let first = port.loaded.current().config.clone();
    let is_first = || Arc::ptr_eq(&first, &port.loaded.current().config);
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
    let ports = vec![port(files()).unwrap()];
    let written = |metrics: &CertificateMetrics| {
        let mut text = MetricsText::new(MetricsForm::Prometheus);
        metrics.append_to(&mut text);
        text.finish()
    };
    let text = written(&CertificateMetrics { ports });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[2], r#"nereid_tls_certificate_expiry_seconds{port="HTTP"} 4948832408"#);
    assert_eq!(written(&CertificateMetrics::default()), "");
}
