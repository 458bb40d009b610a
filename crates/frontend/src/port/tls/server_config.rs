//! Makes the configuration of a port with TLS from its files. Errors name the file.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{ClientCertVerifierBuilder, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use vocabulary::Error;

use super::{
    client_certificates::ClientCertificates,
    elements,
    options::{ClientCertificateRules, TlsOptions, TlsProtocol},
    v1_certificate::V1Certificate,
};

/// What the files contain.
pub(super) struct LoadedTls {
    pub(super) config: Arc<ServerConfig>,
    /// When the first certificate of the chain expires. `None` if no certificate says it in a known form.
    pub(super) expires: Option<UnixTime>,
    /// When the first revocation list must be replaced by a newer one. `None` without lists.
    pub(super) lists_expire: Option<UnixTime>,
}

/// Reads the files. TLS is 1.2 or 1.3.
///
/// # Errors
/// A file cannot be read, does not contain what it should, or does not match the other files.
pub(super) fn load(options: &TlsOptions, protocol: TlsProtocol) -> Result<LoadedTls, Error> {
    let chain = certificates(&options.certificate, "server certificate")?;
    let expires = chain.iter().filter_map(|certificate| elements::expiry(certificate)).min();
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|error| unusable("server key", &options.key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("no usable TLS version: {error}")))?;
    let (builder, lists_expire) = match &options.client_roots {
        Some(roots) => {
            let lists = RevocationLists::read(&options.client_rules.revocation_lists)?;
            let verifier = client_verifier(roots, &options.client_rules, &lists)?;
            (builder.with_client_cert_verifier(verifier), lists.next_update())
        }
        None => (builder.with_no_client_auth(), None),
    };
    let apart = |error: rustls::Error| {
        Error::invalid(format!(
            "server certificate '{}' and server key '{}' cannot be used together: {error}",
            options.certificate.display(),
            options.key.display()
        ))
    };
    let mut config = match V1Certificate::read(&chain[0]) {
        None => builder.with_single_cert(chain, key),
        Some(certificate) => version_1(&certificate, &chain, key)
            .map(|certified| builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))),
    }
    .map_err(apart)?;
    config.alpn_protocols = vec![match protocol {
        TlsProtocol::Http1 => b"http/1.1".to_vec(),
        TlsProtocol::Http2 => b"h2".to_vec(),
    }];
    Ok(LoadedTls { config: Arc::new(config), expires, lists_expire })
}

/// The key and a certificate that rustls itself cannot read.
fn version_1(
    certificate: &V1Certificate<'_>,
    chain: &[CertificateDer<'static>],
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    let key = ring::default_provider().key_provider.load_private_key(key)?;
    match key.public_key() {
        Some(public) if public == certificate.key_info() => Ok(CertifiedKey::new(chain.to_vec(), key)),
        Some(_) => Err(InconsistentKeys::KeyMismatch.into()),
        None => Err(InconsistentKeys::Unknown.into()),
    }
}

/// The revocation lists of some files.
pub(super) struct RevocationLists<'a>(Vec<(&'a Path, Vec<CertificateRevocationListDer<'static>>)>);

impl<'a> RevocationLists<'a> {
    const WHAT: &'static str = "revocation list";

    /// # Errors
    /// A file cannot be read, or holds no list. Lists are not parsed here.
    pub(super) fn read(files: &'a [PathBuf]) -> Result<Self, Error> {
        let read = |path: &'a PathBuf| {
            let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
                .and_then(Iterator::collect)
                .map_err(|error| unusable(Self::WHAT, path, &error))?;
            match lists.is_empty() {
                true => Err(unusable(Self::WHAT, path, &"it holds no revocation list")),
                false => Ok((path.as_path(), lists)),
            }
        };
        files.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// When the first list must be replaced by a newer one.
    fn next_update(&self) -> Option<UnixTime> {
        self.0.iter().flat_map(|(_, lists)| lists).filter_map(|list| elements::next_update(list)).min()
    }

    /// A verifier that looks each certificate of a chain up in the lists, and refuses it if there is no list of its
    /// issuer, or only an expired one. Without lists nothing is looked up.
    ///
    /// # Errors
    /// A list cannot be parsed.
    fn verifier(
        &self,
        builder: impl Fn() -> ClientCertVerifierBuilder,
    ) -> Result<ClientCertVerifierBuilder, Error> {
        if self.0.is_empty() {
            return Ok(builder());
        }
        let mut verifier = builder().enforce_revocation_expiration();
        for (path, lists) in &self.0 {
            // The verifier of all files would not say which one it cannot use.
            let alone = builder().with_crls(lists.clone()).build();
            alone.map_err(|error| unusable(Self::WHAT, path, &error))?;
            verifier = verifier.with_crls(lists.clone());
        }
        Ok(verifier)
    }
}

/// Accepts only clients with a certificate that one of the roots in the file `path` has signed, and that the rules
/// accept.
///
/// # Errors
/// A file cannot be read, or does not contain what it should. Or the rules contradict each other.
pub(super) fn client_verifier(
    path: &Path,
    rules: &ClientCertificateRules,
    lists: &RevocationLists<'_>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    const WHAT: &str = "root certificate";
    if rules.allows_version_1 && !lists.0.is_empty() {
        return Err(Error::invalid(
            "client certificates of version 1 cannot be allowed together with revocation lists, because they are not \
             looked up in them: use either --allow-v1-client-certs or --client-crl-file",
        ));
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, WHAT)? {
        roots.add(certificate).map_err(|error| unusable(WHAT, path, &error))?;
    }
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let version_3 = lists
        .verifier(|| WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()))?
        .build()
        .map_err(|error| unusable(WHAT, path, &error))?;
    if !rules.allows_version_1 {
        return Ok(version_3);
    }
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(ClientCertificates::new(roots, algorithms, version_3)))
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(what, path, &error))?;
    if chain.is_empty() {
        return Err(unusable(what, path, &"it holds no certificate"));
    }
    Ok(chain)
}

fn unusable(what: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("{what} '{}' cannot be used: {why}", path.display()))
}
