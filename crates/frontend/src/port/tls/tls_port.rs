//! The TLS of a port: its certificates as they are now, and their metrics.
use std::{fmt, sync::Arc};

use inference::{
    MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricLabels, MetricsText, label_text},
};
use rustls::pki_types::UnixTime;
use tokio_rustls::TlsAcceptor;
use vocabulary::{Error, LabelName};

use super::{
    options::{TlsOptions, TlsProtocol},
    server_config::{self, LoadedTls},
};
use crate::port::{FileBacked, Reload};

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
        let files =
            files.into_iter().flatten().chain(&options.client_rules.revocation_lists).cloned().collect();
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

impl CertificateMetrics {
    /// Appends a time of each port that has it. Without any, there is no family.
    fn append_times(
        &self,
        text: &mut MetricsText,
        (name, help): (&str, &str),
        time: fn(&LoadedTls) -> Option<UnixTime>,
    ) {
        let of_port = |port: &Arc<TlsPort>| Some((port.name, time(&port.loaded.current())?));
        let times: Vec<_> = self.ports.iter().filter_map(of_port).collect();
        if times.is_empty() {
            return;
        }
        let mut family = MetricFamilyText::begin(text, name, MetricKind::Gauge, help);
        for (port, time) in times {
            let labels = MetricLabels::from([(LabelName::of("port"), port.to_owned())]);
            family.sample(&label_text(&labels), time.as_secs() as f64);
        }
    }
}

impl MetricSource for CertificateMetrics {
    fn append_to(&self, text: &mut MetricsText) {
        let certificates = (
            "nereid_tls_certificate_expiry_seconds",
            "When the first certificate in the chain of a port expires, in seconds since 1970",
        );
        self.append_times(text, certificates, |loaded| loaded.expires);
        let lists = (
            "nereid_tls_revocation_list_expiry_seconds",
            "When the first revocation list of a port expires, in seconds since 1970",
        );
        self.append_times(text, lists, |loaded| loaded.lists_expire);
    }
}
