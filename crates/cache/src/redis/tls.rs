//! TLS to the store. The files are read once, at the start. Errors name the setting and the file.
use std::{fmt, fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;
use vocabulary::Error;

use super::settings::{RedisTlsSettings, invalid};

/// Encrypts connections.
#[derive(Clone)]
pub(super) struct RedisTls {
    pub(super) connector: TlsConnector,
    /// The name that the certificate of the store must have.
    pub(super) server_name: ServerName<'static>,
}

impl RedisTls {
    /// Trusts the certificates that the settings name, or those that the system trusts. Blocks, because it reads files.
    ///
    /// # Errors
    /// INVALID_ARG: a file cannot be read, or does not contain what it should.
    pub(super) fn new(settings: &RedisTlsSettings) -> Result<Self, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(format!("no usable TLS version: {error}")))?
            .with_root_certificates(trusted(settings)?);
        let config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("cert", certificate)?;
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("key", key, &error))?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| unusable("key", key, &error))?
            }
        };
        let name = &settings.server_name;
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| invalid(&format!("'{name}' cannot be the name of a certificate; set 'sni'")))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name })
    }
}

fn trusted(settings: &RedisTlsSettings) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.trusted_file {
        for certificate in certificates("cacert", path)? {
            roots.add(certificate).map_err(|error| unusable("cacert", path, &error))?;
        }
    }
    if let Some(directory) = &settings.trusted_directory {
        let failed = |error: std::io::Error| unusable("cacert_dir", directory, &error);
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // The directory may contain other files, too.
            let found = path.is_file().then(|| certificates("cacert_dir", &path).ok()).flatten();
            roots.add_parsable_certificates(found.into_iter().flatten());
        }
        if roots.is_empty() {
            return Err(unusable("cacert_dir", directory, &"contains no certificate"));
        }
    }
    if settings.trusted_file.is_none() && settings.trusted_directory.is_none() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(invalid("the system trusts no certificates; set 'cacert' or 'cacert_dir'"));
        }
    }
    Ok(roots)
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unusable(setting, path, &"contains no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(setting, path, &error)),
    }
}

fn unusable(setting: &str, path: &Path, why: &dyn fmt::Display) -> Error {
    invalid(&format!("'{setting}' is '{}': {why}", path.display()))
}
