//! The settings of the gRPC endpoint. They do not change while the server runs.
use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kserve::log_control::LogControl;
use shared_memory::ClientRegions;
use trace::Tracer;

use super::{frame_limits::PingRules, keepalive::KeepaliveRules};
use crate::{
    access::{AccessLog, ApiKeys, Restrictions},
    forward::HeaderForward,
    port::{ClientLimits, ConnectionPermits, tls::TlsPort},
    server_name::ServerName,
};

/// Settings of the gRPC endpoint; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct GrpcOptions {
    /// Which metadata becomes parameters of requests (`--grpc-header-forward-pattern`).
    pub forward: Option<HeaderForward>,
    /// The log that clients may see and change.
    pub log: Option<Arc<dyn LogControl>>,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// The name of the server that each answer has. `None`: answers do not have it.
    pub server_name: Option<ServerName>,
    /// The parts of the protocol that need a header (`--grpc-restricted-protocol`), by full header name.
    pub restrictions: Restrictions,
    /// The keys that clients need (`--api-key-file`). `None`: they need none.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// A model waits while the client has not read this many responses of one streamed request
    /// (`--grpc-max-response-pool-size`). `None`: the model does not wait.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// Tools may ask for the schema of the services (`--grpc-reflection`).
    pub reflection: bool,
    /// How the server compresses the responses of the two infer calls (`--grpc-infer-response-compression-level`).
    pub compression: CompressionLevel,
    /// TLS (`--grpc-use-ssl` and its related options).
    pub tls: Option<Arc<TlsPort>>,
    /// The limits that clients must keep.
    pub limits: ClientLimits,
    /// How many connections the port may have.
    pub permits: ConnectionPermits,
    /// The most calls of one connection in flight (`--grpc-max-concurrent-streams`). Clients delay further calls. If a
    /// client does not, h2 refuses the calls.
    pub max_concurrent_streams: u32,
    /// When the server pings idle clients.
    pub keepalive: KeepaliveRules,
    /// How often clients may ping.
    pub pings: PingRules,
    /// The server asks a client to leave its connection after about that time (`--grpc-max-connection-age`). The time
    /// varies by 10 %, so that clients do not all reconnect at once.
    pub max_connection_age: Option<Duration>,
    /// How long the calls of such a connection may go on before the server closes it
    /// (`--grpc-max-connection-age-grace`). `None`: without limit.
    pub max_connection_age_grace: Option<Duration>,
    /// The regions of shared memory that clients have registered, with any protocol.
    pub regions: ClientRegions,
    /// Samples requests, and has the settings of tracing.
    pub tracer: Arc<Tracer>,
}

/// How strongly the server compresses responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionLevel {
    /// No compression.
    #[default]
    None,
    /// Fast compression.
    Low,
    /// A balance of speed and size.
    Medium,
    /// Compression to the smallest size.
    High,
}

impl GrpcOptions {
    /// The default limit for the calls of one connection. Clients usually have fewer calls. The limit is low enough
    /// that a few connections cannot use up the memory.
    pub const MAX_CONCURRENT_STREAMS: u32 = 1024;
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            forward: None,
            log: None,
            access_log: None,
            server_name: None,
            restrictions: Restrictions::default(),
            api_keys: None,
            most_unread_responses: None,
            reflection: true,
            compression: CompressionLevel::None,
            tls: None,
            limits: ClientLimits::default(),
            permits: ConnectionPermits::unlimited(),
            max_concurrent_streams: Self::MAX_CONCURRENT_STREAMS,
            keepalive: KeepaliveRules::default(),
            pings: PingRules::default(),
            max_connection_age: None,
            max_connection_age_grace: None,
            regions: ClientRegions::default(),
            tracer: Arc::new(Tracer::off()),
        }
    }
}
