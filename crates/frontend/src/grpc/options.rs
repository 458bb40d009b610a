//! What the gRPC endpoint is told once.
use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use super::{keepalive::KeepaliveRules, police::PingRules};
use crate::{
    connection::{ClientLimits, ConnectionSlots},
    forward::HeaderForward,
    restrict::Restrictions,
};

/// Settings of the gRPC endpoint; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct GrpcOptions {
    /// Metadata that becomes parameters of requests (`--grpc-header-forward-pattern`).
    pub forward: Option<HeaderForward>,
    /// Parts of the protocol that need a header (`--grpc-restricted-protocol`), by full header name.
    pub restrictions: Restrictions,
    /// A model waits while so many responses of one streamed request are unread (`--grpc-max-response-pool-size`). `None`:
    /// it does not wait.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// How responses of the two infer calls are compressed (`--grpc-infer-response-compression-level`).
    pub compression: CompressionLevel,
    /// Encryption (`--grpc-use-ssl` and its companions).
    pub tls: Option<TlsOptions>,
    /// What clients must keep.
    pub limits: ClientLimits,
    /// How many connections there may be.
    pub slots: ConnectionSlots,
    /// Calls of one connection that may be under way (`--grpc-max-concurrent-streams`). Clients keep others back; h2 refuses
    /// those of clients that do not.
    pub max_concurrent_streams: u32,
    /// When silent clients are pinged.
    pub keepalive: KeepaliveRules,
    /// How often clients may ping.
    pub pings: PingRules,
    /// Connections are asked to go after about that time (`--grpc-max-connection-age`), 10 % more or less so that they
    /// do not all come back at once.
    pub max_connection_age: Option<Duration>,
    /// What calls of such a connection get before it is closed (`--grpc-max-connection-age-grace`); `None` is no bound.
    pub max_connection_age_grace: Option<Duration>,
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

impl GrpcOptions {
    /// The default for the calls of one connection: more than clients usually have, and few enough that some connections
    /// cannot use up the memory.
    pub const MAX_CONCURRENT_STREAMS: u32 = 1024;
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            forward: None,
            restrictions: Restrictions::default(),
            most_unread_responses: None,
            compression: CompressionLevel::None,
            tls: None,
            limits: ClientLimits::default(),
            slots: ConnectionSlots::unlimited(),
            max_concurrent_streams: Self::MAX_CONCURRENT_STREAMS,
            keepalive: KeepaliveRules::default(),
            pings: PingRules::default(),
            max_connection_age: None,
            max_connection_age_grace: None,
        }
    }
}
