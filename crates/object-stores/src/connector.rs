//! The HTTP client of the stores: hyper with rustls and ring, instead of the client that `object_store` would bring.
//!
//! It decides how long a request may take: to connect, until the server answers, and between two pieces of the answer.
//! Answers that the client must hold in memory (listings, errors) have a limit.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_rustls::HttpsConnector as TlsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use vocabulary::{Error, innermost_cause};

use crate::limited_body::{LimitedBody, RequestProblem};

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTimeouts {
    /// Until the server has accepted the connection.
    pub(crate) connect: Duration,
    /// Until the head of the answer is there, which includes connecting.
    pub(crate) response: Duration,
    /// Between two pieces of the answer.
    pub(crate) idle: Duration,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(30),
            idle: Duration::from_secs(30),
        }
    }
}

/// The longest answer that is held in memory: a page of a listing with 5000 long keys has about 10 MB.
const MAX_LISTING_BYTES: u64 = 32 << 20;
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// How long an unused connection stays open.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes clients that share the trusted certificates.
#[derive(Debug, Clone)]
pub(crate) struct StoreConnector {
    tls: Arc<rustls::ClientConfig>,
    timeouts: RequestTimeouts,
}

impl StoreConnector {
    /// Trusts the certificates that the system trusts, and those in `ca_bundle`. Blocks, because it reads files.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: `ca_bundle` cannot be read or has no certificate.
    pub(crate) fn new(ca_bundle: Option<&Path>, timeouts: RequestTimeouts) -> Result<Self, Error> {
        let mut roots = rustls::RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if let Some(path) = ca_bundle {
            let failed =
                |why: &dyn fmt::Display| Error::invalid(format!("AWS_CA_BUNDLE '{}': {why}", path.display()));
            let before = roots.len();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
                let certificate = certificate.map_err(|error| failed(&error))?;
                roots.add(certificate).map_err(|error| failed(&error))?;
            }
            if roots.len() == before {
                return Err(failed(&"contains no certificate"));
            }
        }
        if roots.is_empty() {
            log::warn!("the system trusts no certificates, so object stores cannot be reached over https");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(format!("TLS cannot be used: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls), timeouts })
    }
}

impl HttpConnector for StoreConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.timeouts.connect));
        let allows_http =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config((*self.tls).clone());
        let builder = if allows_http { builder.https_or_http() } else { builder.https_only() };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(builder.enable_http1().wrap_connector(tcp));
        Ok(HttpClient::new(StoreClient { client, timeouts: self.timeouts }))
    }
}

/// A client with its pool of connections.
#[derive(Debug)]
struct StoreClient {
    client: Client<TlsConnector<TcpConnector>, HttpRequestBody>,
    timeouts: RequestTimeouts,
}

impl StoreClient {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(request.uri());
        let answer = tokio::time::timeout(self.timeouts.response, self.client.request(request)).await;
        let Ok(answer) = answer else {
            let seconds = self.timeouts.response.as_secs_f32();
            return Err(HttpError::new(
                HttpErrorKind::Timeout,
                RequestProblem(format!("the server did not answer within {seconds} s")),
            ));
        };
        let (parts, body) = answer.map_err(|error| failure(&error))?.into_parts();
        let limit = match (parts.status.is_success(), is_listing) {
            (false, _) => Some(MAX_ERROR_BYTES),
            (true, true) => Some(MAX_LISTING_BYTES),
            (true, false) => None,
        };
        let body = HttpResponseBody::new(LimitedBody::new(body, self.timeouts.idle, limit));
        Ok(HttpResponse::from_parts(parts, body))
    }
}

impl HttpService for StoreClient {
    // What `async_trait` makes of an `async fn` of this trait.
    fn call<'life, 'future>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        Box::pin(self.send(request))
    }
}

/// Whether the answer is a page of a listing: `list-type=2` in S3 and Google Cloud Storage, `comp=list` in Azure.
fn is_listing(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list")))
}

/// An error of the client, with the kind that says whether the request may be repeated. All requests only read.
fn failure(error: &hyper_util::client::legacy::Error) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    let cause = innermost_cause(error);
    let what = if error.is_connect() { "cannot connect" } else { "the connection failed" };
    HttpError::new(kind, RequestProblem(format!("{what}: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_listings_are_recognized_by_their_query() {
        for (uri, expected) in [
            ("http://host/bucket?list-type=2&prefix=a", true),
            ("http://host/account/container?restype=container&comp=list", true),
            ("http://host/bucket/object", false),
            ("http://host/bucket/list-type=2", false),
        ] {
            assert_eq!(is_listing(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn a_bundle_without_certificates_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.pem");
        std::fs::write(&path, "nothing").unwrap();
        let error = StoreConnector::new(Some(&path), RequestTimeouts::default()).unwrap_err();
        assert!(error.message.ends_with("bundle.pem': contains no certificate"), "{error}");
    }
}
