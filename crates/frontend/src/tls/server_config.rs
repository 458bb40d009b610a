//! Makes the configuration of a port with TLS from its files. Errors name the file.
use std::{path::Path, sync::Arc};

use inference::Error;
use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{
    TlsOptions, TlsProtocol, client_certificates::ClientCertificates, der, v1_certificate::V1Certificate,
};

/// What the files contain.
pub(super) struct LoadedTls {
    pub(super) config: Arc<ServerConfig>,
    /// When the first certificate of the chain expires. `None` if no certificate says it in a known form.
    pub(super) expires: Option<UnixTime>,
}

/// Reads the files. TLS is 1.2 or 1.3.
///
/// # Errors
/// A file cannot be read, does not contain what it should, or does not match the other files.
pub(super) fn load(options: &TlsOptions, protocol: TlsProtocol) -> Result<LoadedTls, Error> {
    let chain = certificates(&options.certificate, "server certificate")?;
    let expires = chain.iter().filter_map(|certificate| der::expiry(certificate)).min();
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|error| unusable("server key", &options.key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("no usable TLS version: {error}")))?;
    let builder = match &options.client_roots {
        Some(roots) => builder.with_client_cert_verifier(client_verifier(roots)?),
        None => builder.with_no_client_auth(),
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
    Ok(LoadedTls { config: Arc::new(config), expires })
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

/// Accepts only clients with a certificate that one of the roots has signed.
fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    const WHAT: &str = "root certificate";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, WHAT)? {
        roots.add(certificate).map_err(|error| unusable(WHAT, path, &error))?;
    }
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let version_3 = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| unusable(WHAT, path, &error))?;
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
