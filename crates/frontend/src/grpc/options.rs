//! What the gRPC endpoint is told once.
use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{forward::HeaderForward, restrict::Restrictions};

/// Settings of the gRPC endpoint; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct GrpcOptions {
    /// Metadata that becomes parameters of requests (`--grpc-header-forward-pattern`).
    pub forward: Option<HeaderForward>,
    /// Parts of the protocol that need a header (`--grpc-restricted-protocol`), by full header name.
    pub restrictions: Restrictions,
    /// Most bytes of a message, as it comes and once it is inflated. The protocol has no larger ones than 2^31 - 1.
    pub max_request_bytes: u64,
    /// A model waits while so many responses of one streamed request are unread (`--grpc-max-response-pool-size`). `None`:
    /// it does not wait.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// How responses of the two infer calls are compressed (`--grpc-infer-response-compression-level`).
    pub compression: CompressionLevel,
    /// Encryption (`--grpc-use-ssl` and its companions).
    pub tls: Option<TlsOptions>,
    /// A connection without any traffic is asked for a sign of life after that time (`--grpc-keepalive-time`);
    /// `None` never asks. Connections without calls are asked, too: hyper cannot leave them out.
    pub keepalive_time: Option<Duration>,
    /// How long the sign of life may take (`--grpc-keepalive-timeout`).
    pub keepalive_timeout: Duration,
    /// Connections are asked to go after about that time (`--grpc-max-connection-age`), 10 % more or less so that they
    /// do not all come back at once.
    pub max_connection_age: Option<Duration>,
    /// What calls of such a connection get before it is closed (`--grpc-max-connection-age-grace`); `None` is no bound.
    pub max_connection_age_grace: Option<Duration>,
}

impl GrpcOptions {
    /// Most bytes of a message.
    pub(crate) fn message_limit(&self) -> usize {
        usize::try_from(self.max_request_bytes).unwrap_or(usize::MAX)
    }
}

/// How hard responses are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionLevel {
    /// Not at all.
    #[default]
    None,
    /// Fast.
    Low,
    /// Balanced.
    Medium,
    /// Small.
    High,
}

/// The files of an encrypted endpoint, all in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificate chain of the server (`--grpc-server-cert`).
    pub certificate: PathBuf,
    /// Its private key (`--grpc-server-key`).
    pub key: PathBuf,
    /// Certificates that vouch for clients (`--grpc-root-cert`). With them each client must show a certificate
    /// (`--grpc-use-ssl-mutual`).
    pub client_roots: Option<PathBuf>,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            forward: None,
            restrictions: Restrictions::default(),
            max_request_bytes: u64::MAX,
            most_unread_responses: None,
            compression: CompressionLevel::None,
            tls: None,
            keepalive_time: Some(Duration::from_secs(7200)),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: None,
            max_connection_age_grace: None,
        }
    }
}
