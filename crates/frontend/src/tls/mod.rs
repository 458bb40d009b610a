//! TLS for any port: the certificates of the server, the verification of clients, and the renewal of both.
//!
//! A [`TlsPort`] reads its files at the start and again when they change. A connection uses the files as they are when
//! its handshake begins. If new files cannot be used, the port keeps the old ones.
mod client_certificates;
mod der;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod server_config;
#[cfg(test)]
mod tests;
mod v1_certificate;

use std::{fmt, path::PathBuf, sync::Arc};

use inference::{
    Error, MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricLabels, MetricsText, label_text},
};
use tokio_rustls::TlsAcceptor;

use crate::reload::{FileBacked, Reload};
use server_config::LoadedTls;
#[cfg(test)]
pub(crate) use v1_certificate::V1Certificate;

/// The files of a port with TLS, all in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificate chain of the server (`--grpc-server-cert`, `--http-server-cert`, `--metrics-server-cert`).
    pub certificate: PathBuf,
    /// The private key of the server (`--grpc-server-key` and its counterparts).
    pub key: PathBuf,
    /// The root certificates for client certificates (`--grpc-root-cert` and its counterparts). If they are given, each
    /// client must present a certificate (`--grpc-use-ssl-mutual` and its counterparts).
    pub client_roots: Option<PathBuf>,
}

/// The protocol inside of TLS. Clients that name only other protocols (ALPN) are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsProtocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2, for gRPC
    Http2,
}

/// The TLS of one port.
pub struct TlsPort {
    /// The port's name in the log and in metrics.
    name: &'static str,
    loaded: FileBacked<LoadedTls>,
}

impl fmt::Debug for TlsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TlsPort {
    /// Reads the files. `name` is the name of the port in the log and in metrics.
    ///
    /// # Errors
    /// A file cannot be read, does not contain what it should, or does not match the other files. The text names the
    /// file (P-W22).
    pub fn new(name: &'static str, options: TlsOptions, protocol: TlsProtocol) -> Result<Arc<Self>, Error> {
        let files = [Some(&options.certificate), Some(&options.key), options.client_roots.as_ref()];
        let files = files.into_iter().flatten().cloned().collect();
        let what = format!("the certificates of the {name} port");
        let read = move || server_config::load(&options, protocol);
        Ok(Arc::new(Self { name, loaded: FileBacked::load(what, files, read)? }))
    }

    /// Accepts encrypted connections with the current files.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.loaded.current().config.clone())
    }
}

impl Reload for TlsPort {
    fn reload_if_changed(&self) {
        self.loaded.reload_if_changed();
    }
}

/// The metrics of the certificates of all ports.
#[derive(Debug, Clone, Default)]
pub struct CertificateMetrics {
    /// The ports with TLS.
    pub ports: Vec<Arc<TlsPort>>,
}

impl MetricSource for CertificateMetrics {
    fn append_to(&self, text: &mut MetricsText) {
        if self.ports.is_empty() {
            return;
        }
        let help = "When the first certificate in the chain of a port expires, in seconds since 1970";
        let name = "nereid_tls_certificate_expiry_seconds";
        let mut family = MetricFamilyText::begin(text, name, MetricKind::Gauge, help);
        for port in &self.ports {
            let labels = MetricLabels::from([("port".to_owned(), port.name.to_owned())]);
            if let Some(expires) = port.loaded.current().expires {
                family.sample(&label_text(&labels), expires.as_secs() as f64);
            }
        }
    }
}
