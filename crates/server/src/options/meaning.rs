//! The meaning of a command line: checked and typed options for the rest of the program, independent of how they were
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use engine::{
    ControlMode, LoadPolicy, MetricsOptions, OnDemandOptions, Polling, RateLimitResource, ReadinessRule,
};
use frontend::{
    ServerName,
    access::Category,
    grpc::{CompressionLevel, KeepaliveRules, PingRules},
    http::{DrainStatus, OriginRules, SageMakerOptions},
    port::{ClientLimits, tls::TlsOptions},
};
use host::{HostPolicy, MemoryLimits};
use shared_memory::SharedMemoryOptions;
use trace::TraceConfig;

use crate::{color::ColorChoice, logging::LogConfig};

pub use inference::BackendSetting;

/// The names of options, each with its values as they were written, in their order. Values may be secrets.
pub type GivenOptions = BTreeMap<&'static str, Vec<String>>;

/// All settings of a server that the command line and the environment determine.
///
/// Contains only features of this version: the parser refuses options that ask for others. An endpoint that is off is
/// `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedOptions {
    /// Settings of the whole server.
    pub server: ServerSettings,
    /// What the server logs, and where.
    pub logging: LogConfig,
    /// When texts for people have colours.
    pub color: ColorChoice,
    /// The access log, if there is one.
    pub access_log: Option<AccessLogSettings>,
    /// Where models come from, and how the server loads them.
    pub repository: RepositorySettings,
    /// The HTTP endpoint.
    pub http: Option<HttpSettings>,
    /// The protocol of the HTTP endpoint and of the endpoints of managed platforms.
    pub http_protocol: HttpProtocolSettings,
    /// The gRPC endpoint.
    pub grpc: Option<GrpcSettings>,
    /// The endpoint for SageMaker.
    pub sagemaker: Option<SageMakerSettings>,
    /// The endpoint for Vertex AI.
    pub vertex_ai: Option<VertexAiSettings>,
    /// Who may use the ports.
    pub credentials: CredentialSettings,
    /// How long clients may take, and how much they may send.
    pub client_limits: ClientLimits,
    /// How many connections each port may have.
    pub connections: Connections,
    /// The Prometheus endpoint.
    pub metrics: Option<MetricsSettings>,
    /// The backends and their settings.
    pub backends: BackendsSettings,
    /// The response cache, if the options name one.
    pub cache: Option<CacheSettings>,
    /// The resources that executions wait for. The entries are as given. `None` if executions do not wait
    /// (`--rate-limit=off`).
    pub rate_limit: Option<Vec<RateLimitResource>>,
    /// How much memory clients may make the server hold.
    pub limits: MemoryLimits,
    /// What clients may do with shared memory. `None`: nothing.
    pub shared_memory: Option<SharedMemoryOptions>,
    /// Where instances run, by the name of the policy.
    pub host_policies: BTreeMap<String, HostPolicy>,
    /// Which requests are traced, and where their traces go.
    pub tracing: TraceConfig,
    /// Sizes that the server accepts and shows. This version reserves no memory for them.
    pub memory: MemorySettings,
    /// Delays for tests, from the environment.
    pub test_hooks: TestHooks,
    /// The options that were given on the command line, in the environment or in the file.
    pub given: GivenOptions,
    /// Lines for stderr about deprecated or overridden options, in the order of the command line.
    pub warnings: Vec<String>,
}

impl ResolvedOptions {
    /// Writes each warning on a line of its own.
    pub fn write_warnings(&self, err: &mut dyn Write) {
        for warning in &self.warnings {
            // If the reader has closed stderr, the error does not matter.
            let _ = writeln!(err, "{warning}");
        }
    }
}

/// Settings of the whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The name in the server metadata.
    pub id: String,
    /// The same, as answers have it. `None`: they do not have it, because the operator has not named the server.
    pub name_in_answers: Option<ServerName>,
    /// How long an exit waits for requests in flight. All steps together share this time. It begins after
    /// `shutdown_delay`.
    pub exit_timeout: Duration,
    /// How long a server that was told to stop still serves new requests. Meanwhile it is not ready.
    pub shutdown_delay: Duration,
    /// If true, a model that fails to load at startup ends the process.
    pub exit_on_error: bool,
    /// Which models must be ready so that the server is ready.
    pub readiness: ReadinessRule,
}

/// The log of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLogSettings {
    /// The file; `None` for stdout.
    pub path: Option<PathBuf>,
    /// Which part of the requests is logged, from 0 to 1.
    pub rate: f64,
}

/// Where models come from, and how the server loads them. The server loads all models at startup and keeps them
/// (control mode `none`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositorySettings {
    /// The repositories' paths and URLs as typed, sorted, without duplicates. Empty if neither the command line nor
    /// `AIP_STORAGE_URI` names one. Then the server refuses to start, unless there are `model_files`.
    pub paths: BTreeSet<String>,
    /// ONNX files that are served as models of their own.
    pub model_files: BTreeSet<PathBuf>,
    /// What the only path, or the only model file, is served as, instead of a repository.
    pub single_model: Option<String>,
    /// If true, backends may complete model configurations.
    pub auto_complete: bool,
    /// The name, without `.pbtxt`, of the file in a model's `configs` directory that is preferred to its
    /// `config.pbtxt`.
    pub config_name: Option<String>,
    /// The directory of repository agents. May be empty in this type; the server refuses an empty path.
    pub agent_directory: PathBuf,
    /// How many models may load at the same time.
    pub load_threads: NonZeroUsize,
    /// How many times a failed load is repeated.
    pub load_retries: u32,
    /// Which models the server loads in spite of a problem.
    pub load_policy: LoadPolicy,
    /// Which models the server loads, and when.
    pub control_mode: ControlMode,
    /// Where copies of models from object stores are. `None`: at the default place.
    pub cache_directory: Option<PathBuf>,
    /// How many bytes of copies may stay that no served model uses.
    pub cache_byte_size: u64,
    /// When the server looks for changes of models.
    pub polling: Polling,
    /// How models are loaded when requests come for them. `None`: they are not.
    pub on_demand: Option<OnDemandOptions>,
    /// How long requests of running sequences go to the old copy of a model.
    pub sequence_timeout: Duration,
    /// The models of the start, if clients load models. `*` stands for all.
    pub startup_models: BTreeSet<String>,
    /// Whether models of different repositories may have the same name.
    pub namespacing: bool,
}

impl RepositorySettings {
    /// Whether there is a repository or a file with a model.
    pub fn is_given(&self) -> bool {
        !self.paths.is_empty() || !self.model_files.is_empty()
    }
}

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// A host name or an address, as typed.
    pub address: String,
    /// The port. 0 lets the system choose.
    pub port: u16,
    /// If true, other servers may listen on the same port.
    pub reuse_port: bool,
    /// The permissions of the file if the address is a unix socket.
    pub socket_mode: u32,
}

/// The endpoint for SageMaker. It has the other settings of the HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SageMakerSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// TLS, as of the HTTP endpoint. `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// What the platform's variables say.
    pub options: SageMakerOptions,
}

/// The endpoint for Vertex AI. It has the other settings of the HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VertexAiSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// TLS, as of the HTTP endpoint. `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// The path of predictions. Without it the endpoint refuses to start.
    pub predict_route: Option<String>,
    /// The path of the readiness check. Without it the endpoint refuses to start.
    pub health_route: Option<String>,
    /// The model of predictions. `None`: the only model.
    pub default_model: Option<String>,
}

/// Who may use the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialSettings {
    /// The file of API keys. `None`: clients need none.
    pub api_key_file: Option<PathBuf>,
    /// How often the server looks for changed files. `None`: only after SIGHUP.
    pub reload_interval: Option<Duration>,
}

/// The header that a request needs to use a restricted category. The comparison of names ignores case, the comparison
/// of values is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredHeader {
    /// The header or metadata key. For gRPC it includes the prefix `triton-grpc-protocol-`.
    pub name: String,
    /// The value of the header.
    pub value: String,
}

/// The restricted categories of an endpoint.
pub type RestrictionSettings = BTreeMap<Category, RequiredHeader>;

/// The HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// TLS. `None` for plain text.
    pub tls: Option<TlsOptions>,
}

/// The protocol over HTTP, on any port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProtocolSettings {
    /// The largest request body, also after decompression, in bytes.
    pub max_input_size: NonZeroUsize,
    /// Which request headers become request parameters: a regular expression that is not compiled yet.
    pub header_forward_pattern: Option<String>,
    /// Categories that need a header.
    pub restrictions: RestrictionSettings,
    /// Which web pages may send requests, and which hosts requests may name. They hold for the port of metrics, too.
    pub origin_rules: OriginRules,
    /// What it answers to questions for its readiness when it will stop.
    pub drain_status: DrainStatus,
    /// Whether it describes itself (OpenAPI), and has a page that shows it.
    pub describes_itself: bool,
    /// Whether it tells people what the server does, and has a page that shows it.
    pub shows_status: bool,
    /// The number of log lines that are kept for this page. `None`: none.
    pub status_log_lines: Option<NonZeroUsize>,
}

/// The gRPC endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// A model waits while the client has not read this many responses of one request of a stream. `None`: the model
    /// does not wait.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// TLS. `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// How strongly inference responses are compressed for clients that accept it.
    pub compression: CompressionLevel,
    /// When the server pings idle clients.
    pub keepalive: KeepaliveRules,
    /// How often clients may ping.
    pub pings: PingRules,
    /// The age after which the server closes a connection. Its calls get the grace time.
    pub max_connection_age: Option<Duration>,
    /// How long calls may go on after that. `None` for no limit.
    pub max_connection_age_grace: Option<Duration>,
    /// The most calls of one connection in flight.
    pub max_concurrent_streams: u32,
    /// Tools may ask for the schema of the services.
    pub reflection: bool,
    /// Which metadata become request parameters: a regular expression that is not compiled yet.
    pub header_forward_pattern: Option<String>,
    /// Categories that need a metadata entry.
    pub restrictions: RestrictionSettings,
}

/// How many connections each port may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// The limit for all ports but that of metrics together.
    pub total: usize,
    /// The limit for HTTP. `None` for no separate limit.
    pub http: Option<usize>,
    /// The limit for gRPC. `None` for no separate limit.
    pub grpc: Option<usize>,
    /// The limit for the metrics port. Its connections do not count in `total`.
    pub metrics: usize,
    /// How many connections one address may have of each limit. `None`: a quarter.
    pub per_address: Option<usize>,
}

/// The Prometheus endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsSettings {
    /// Where it listens.
    pub listen: ListenSettings,
    /// TLS. `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// What it shows.
    pub shown: MetricsOptions,
    /// Whether clients that prefer OpenMetrics get it. Otherwise only those that read nothing else do.
    pub offers_openmetrics: bool,
}

/// The backends and their settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendsSettings {
    /// The directory of backends.
    pub directory: PathBuf,
    /// Settings in the order given. If two settings have the same backend and key, the later one counts.
    pub settings: Vec<BackendSetting>,
    /// The ONNX Runtime library, if the options name one. Otherwise the backend searches for it.
    pub onnxruntime_library: Option<PathBuf>,
    /// The library of OpenVINO, if the environment names one. Otherwise the backend searches for it.
    pub openvino_library: Option<PathBuf>,
    /// The library of PyTorch, if the environment names one. Otherwise the backend searches for it.
    pub torch_library: Option<PathBuf>,
    /// Prefixes under which Python packages may be installed, ONNX Runtime's among them.
    pub python_prefixes: Vec<PathBuf>,
}

/// The response cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// The name of the cache.
    pub name: String,
    /// The settings of the cache. Only the cache interprets them.
    pub settings: BTreeMap<String, String>,
    /// The directory of caches.
    pub directory: PathBuf,
}

/// Sizes that the server accepts and shows. This version reserves no memory for them.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// Page-locked host memory, in bytes.
    pub pinned_pool_byte_size: u64,
    /// Device memory in bytes, by device.
    pub cuda_pool_byte_sizes: BTreeMap<u32, u64>,
    /// The minimum compute capability of a usable device.
    pub min_supported_compute_capability: f64,
}

/// Delays for tests, from the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Schedulers start when this many requests are queued. 0 for no delay.
    pub delay_scheduler: usize,
    /// Sequence batchers start when this many requests are in the backlog. 0 for no delay.
    pub backlog_delay_scheduler: usize,
}
