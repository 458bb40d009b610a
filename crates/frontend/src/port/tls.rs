//! TLS for any port: the certificates of the server, the verification of clients, and the renewal of both.
//!
//! A [`TlsPort`] reads its files at the start and again when they change. A connection uses the files as they are when
//! its handshake begins. If new files cannot be used, the port keeps the old ones.
mod client_certificates;
mod elements;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod options;
mod server_config;
#[cfg(test)]
mod tests;
mod tls_port;
mod v1_certificate;

pub use options::{ClientCertificateRules, TlsOptions, TlsProtocol};
pub use tls_port::{CertificateMetrics, TlsPort};
#[cfg(test)]
pub(crate) use v1_certificate::V1Certificate;
