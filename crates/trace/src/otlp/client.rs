//! The HTTP client of the collector.
use std::{fmt, path::Path, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use vocabulary::{Error, innermost_cause};

use crate::config::{OtlpConfig, OtlpProtocol};

/// The most bytes of an answer that are read. Nothing of it is used.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The name of the server towards the collector.
const AGENT: &str = concat!("nereid/", env!("CARGO_PKG_VERSION"));

/// Sends batches to one URL.
pub(super) struct CollectorClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
}

impl CollectorClient {
    /// # Errors
    /// INVALID_ARG: the URL is not valid, its scheme is neither `http` nor `https`, or the certificates cannot be read.
    pub(super) fn new(config: &OtlpConfig) -> Result<Self, Error> {
        let url = &config.url;
        let invalid = |why: &dyn fmt::Display| {
            Error::invalid(format!(
                "'{url}' is not a URL of a collector (--trace-config opentelemetry,url, or \
                 OTEL_EXPORTER_OTLP_ENDPOINT): {why}"
            ))
        };
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = whole.parse().map_err(|error| invalid(&error))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid(&"the scheme must be http or https")),
        };
        let roots = if is_secure { roots(config.certificates.as_deref())? } else { RootCertStore::empty() };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(roots)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let content_type = match config.protocol {
            OtlpProtocol::HttpJson => "application/json",
            OtlpProtocol::HttpProtobuf => "application/x-protobuf",
        };
        let mut headers = config.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), uri, headers })
    }

    pub(super) fn url(&self) -> &Uri {
        &self.uri
    }

    /// Sends a batch. An error says what the collector has done.
    pub(super) async fn send(&self, body: Vec<u8>) -> Result<(), String> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let unreachable = |error| format!("cannot be reached: {}", innermost_cause(&error));
        let answer = self.client.request(request).await.map_err(unreachable)?;
        let status = answer.status();
        // Read to its end, so that the connection can be used again.
        let _ = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        if status.is_success() { Ok(()) } else { Err(format!("has refused spans with status {status}")) }
    }
}

/// What signs the certificates that count: those of the file, or those that the system trusts. Reads files.
fn roots(file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let unusable = |why: &dyn fmt::Display| {
        Error::invalid(format!(
            "cannot use the certificates for the collector in '{}': {why}",
            file.display()
        ))
    };
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(unusable(&"it contains no certificate")) } else { Ok(roots) }
}

fn tls(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_is_http() {
        let of = |url: &str| {
            let config = OtlpConfig { url: url.to_owned(), ..OtlpConfig::default() };
            CollectorClient::new(&config).map(|client| client.url().to_string())
        };
        assert_eq!(of("localhost:4318/v1/traces").unwrap(), "http://localhost:4318/v1/traces");
        assert_eq!(of("https://host/x").unwrap(), "https://host/x");
        for wrong in ["ftp://host/x", "http://", "a b"] {
            let error = of(wrong).unwrap_err();
            assert!(error.message.contains(&format!("'{wrong}' is not a URL of a collector")), "{error}");
        }
    }

    #[test]
    fn certificates_are_read_for_a_url_that_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        let of = |url: &str, name: &str| {
            let certificates = Some(folder.path().join(name));
            let config = OtlpConfig { url: url.to_owned(), certificates, ..OtlpConfig::default() };
            CollectorClient::new(&config).map(drop).map_err(|error| error.message)
        };
        std::fs::write(folder.path().join("empty.pem"), "").unwrap();
        for name in ["missing.pem", "empty.pem"] {
            let error = of("https://host/x", name).unwrap_err();
            let expected = "cannot use the certificates for the collector in '";
            assert!(error.starts_with(expected) && error.contains(name), "{error}");
            assert_eq!(of("http://host/x", name), Ok(()));
        }
    }
}
