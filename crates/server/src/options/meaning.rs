//! What a command line means: the options the rest of the program sees, checked, typed and free of history.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

pub use engine::BackendSetting;
use engine::{HostPolicy, LoadPolicy, MemoryLimits, RateLimitResource};
use frontend::connection::ClientLimits;
use frontend::grpc::{CompressionLevel, KeepaliveRules, PingRules, TlsOptions};
use frontend::restrict::Category;

use crate::logging::LogConfig;

/// Everything that the command line and the environment decide about a server.
///
/// Holds nothing that this version cannot do: such options are refused while parsing. Endpoints that are off
/// are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedOptions {
    /// The server as a whole.
    pub server: ServerSettings,
    /// What goes where in the log.
    pub logging: LogConfig,
    /// Where models come from and how they are loaded.
    pub repository: RepositorySettings,
    /// The HTTP endpoint.
    pub http: Option<HttpSettings>,
    /// The gRPC endpoint.
    pub grpc: Option<GrpcSettings>,
    /// How long clients may take, and how much they may send.
    pub client_limits: ClientLimits,
    /// How many connections there may be.
    pub connections: Connections,
    /// The Prometheus endpoint.
    pub metrics: Option<MetricsSettings>,
    /// Backends and what they are told.
    pub backends: BackendsSettings,
    /// The response cache, if there is to be one.
    pub cache: Option<CacheSettings>,
    /// The resources that executions wait for, entries as given; `None` if they wait for none (`--rate-limit=off`).
    pub rate_limit: Option<Vec<RateLimitResource>>,
    /// How much memory clients may make the server hold.
    pub limits: MemoryLimits,
    /// Where instances run, by the policy's name.
    pub host_policies: BTreeMap<String, HostPolicy>,
    /// Sizes that are accepted and shown, but reserve nothing in this version.
    pub memory: MemorySettings,
    /// Delays that tests ask for through the environment.
    pub test_hooks: TestHooks,
    /// Lines for stderr about deprecated or overridden options, in the order of the command line.
    pub warnings: Vec<String>,
}

/// The server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The name in the server metadata.
    pub id: String,
    /// How long an exit waits for requests in flight, all steps together.
    pub exit_timeout: Duration,
    /// Whether a model that fails to load at startup ends the process.
    pub exit_on_error: bool,
    /// Whether the server is ready only when all its models are.
    pub strict_readiness: bool,
}

/// Where models come from and how they are loaded. All models are loaded at startup and stay (control mode
/// `none`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositorySettings {
    /// The repositories' paths as typed, sorted, without duplicates. Empty if neither the command line nor
    /// `AIP_STORAGE_URI` named one; then the engine refuses to start.
    pub paths: BTreeSet<String>,
    /// Whether backends may fill in what a model configuration leaves out.
    pub auto_complete: bool,
    /// Which file of a model's `configs` directory to prefer over its `config.pbtxt`, without `.pbtxt`.
    pub config_name: Option<String>,
    /// Where repository agents are looked for. May be empty here, which the server refuses.
    pub agent_directory: PathBuf,
    /// How many models may be loading at the same time.
    pub load_threads: NonZeroUsize,
    /// How often a failed load is tried again.
    pub load_retries: u32,
    /// What is loaded although something speaks against it.
    pub load_policy: LoadPolicy,
}

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// Host name or address as typed.
    pub address: String,
    /// 0 lets the system choose.
    pub port: u16,
    /// Whether other servers may listen on the same port.
    pub reuse_port: bool,
}

/// What a request must carry to enter a restricted category. Names compare without case, values exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredHeader {
    /// The header or metadata key; for gRPC it includes the prefix `triton-grpc-protocol-`.
    pub name: String,
    /// The value it must have.
    pub value: String,
}

/// The restricted categories of an endpoint.
pub type RestrictionSettings = BTreeMap<Category, RequiredHeader>;

/// The HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// The largest request body, also after decompression, in bytes.
    pub max_input_size: NonZeroUsize,
    /// Which request headers become request parameters: a regular expression, not yet compiled.
    pub header_forward_pattern: Option<String>,
    /// Categories that need a header.
    pub restrictions: RestrictionSettings,
}

/// The gRPC endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// A model waits while so many responses of one request of a stream are unread; `None`: it does not wait.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// Encryption, `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// How strongly inference responses are compressed for clients that accept it.
    pub compression: CompressionLevel,
    /// When silent clients are pinged.
    pub keepalive: KeepaliveRules,
    /// How often clients may ping.
    pub pings: PingRules,
    /// After how long a connection is closed, its calls being given the grace.
    pub max_connection_age: Option<Duration>,
    /// How long calls may go on after that; `None` for as long as they need.
    pub max_connection_age_grace: Option<Duration>,
    /// How many calls of one connection may be under way.
    pub max_concurrent_streams: u32,
    /// Which metadata become request parameters: a regular expression, not yet compiled.
    pub header_forward_pattern: Option<String>,
    /// Categories that need a metadata entry.
    pub restrictions: RestrictionSettings,
}

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Over HTTP and gRPC together.
    pub total: usize,
    /// Over HTTP, `None` for all of them.
    pub http: Option<usize>,
    /// Over gRPC, `None` for all of them.
    pub grpc: Option<usize>,
    /// On the metrics port, which has its own.
    pub metrics: usize,
}

/// The Prometheus endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// Whether to report processor and memory use.
    pub cpu: bool,
    /// Whether durations are counted.
    pub counter_latencies: bool,
}

/// Backends and what they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendsSettings {
    /// Where backends are looked for.
    pub directory: PathBuf,
    /// Settings in the order given; of two for the same backend and key the later counts.
    pub settings: Vec<BackendSetting>,
    /// The ONNX Runtime library, if named; else the backend looks for it.
    pub onnxruntime_library: Option<PathBuf>,
    /// Where Python packages, ONNX Runtime's among them, may be installed.
    pub python_prefixes: Vec<PathBuf>,
}

/// The response cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// Which one.
    pub name: String,
    /// What it is told; only the cache knows what that means.
    pub settings: BTreeMap<String, String>,
    /// Where it is looked for.
    pub directory: PathBuf,
}

/// Sizes that are accepted and shown, but reserve nothing in this version.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// Page-locked host memory, in bytes.
    pub pinned_pool_byte_size: u64,
    /// Device memory in bytes by device.
    pub cuda_pool_byte_sizes: BTreeMap<u32, u64>,
    /// The least compute capability of a device that may be used.
    pub min_supported_compute_capability: f64,
}

/// Delays that tests ask for through the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Schedulers do not start before this many requests are queued; 0 for no delay.
    pub delay_scheduler: usize,
    /// Sequence batchers do not start before this many requests are in the backlog; 0 for no delay.
    pub backlog_delay_scheduler: usize,
}
