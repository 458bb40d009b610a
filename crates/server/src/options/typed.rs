//! The typed options: the value of every option as it was read, before the rules between options are applied.
//!
//! Only the table writes these fields, and only `resolve` reads them. The fields of `TypedOptions::default()` have no
//! meaning until `table::defaults` has passed the default texts of the table to the setters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use engine::{ControlMode, RateLimitResource};
use frontend::http::{DrainStatus, OriginRules};
use host::HostPolicy;

use super::meaning::{BackendSetting, GivenOptions, RestrictionSettings};
use super::trace;

#[derive(Debug, Default)]
pub(super) struct TypedOptions {
    pub(super) server: TypedServer,
    pub(super) logging: TypedLogging,
    pub(super) repository: TypedRepository,
    pub(super) http: TypedHttp,
    pub(super) grpc: TypedGrpc,
    pub(super) ports: TypedPorts,
    pub(super) clients: Clients,
    pub(super) outside: TypedOutside,
    pub(super) metrics: TypedMetrics,
    pub(super) trace: trace::TypedTrace,
    pub(super) backends: TypedBackends,
    pub(super) cache: TypedCache,
    pub(super) rate_limit_on: bool,
    pub(super) rate_limit_resources: Vec<RateLimitResource>,
    pub(super) devices: TypedDevices,
    /// The options that were given, with their values.
    pub(super) given: GivenOptions,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct TypedServer {
    pub(super) id: String,
    pub(super) exit_timeout_secs: i64,
    pub(super) shutdown_delay_secs: i64,
    pub(super) max_inflight_bytes: Option<i64>,
    pub(super) max_unread_response_bytes: Option<i64>,
    pub(super) max_intermediate_bytes: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct TypedLogging {
    pub(super) verbose: i64,
    pub(super) info: bool,
    pub(super) warning: bool,
    pub(super) error: bool,
    pub(super) format: crate::logging::LogFormat,
    pub(super) color: crate::color::ColorChoice,
    pub(super) file: String,
    pub(super) access_log: String,
    pub(super) access_log_rate: f64,
}

#[derive(Debug, Default)]
pub(super) struct TypedRepository {
    pub(super) paths: BTreeSet<String>,
    pub(super) model_files: BTreeSet<PathBuf>,
    /// What the only repository is served as.
    pub(super) single_model: Option<String>,
    pub(super) exit_on_error: bool,
    pub(super) disable_auto_complete: bool,
    pub(super) strict_model_config: Option<bool>,
    pub(super) strict_readiness: bool,
    /// Only the models of the start count for readiness.
    pub(super) startup_readiness: bool,
    pub(super) control_mode: ControlMode,
    pub(super) poll_secs: i64,
    /// How long a change must have been the same before it counts.
    pub(super) settle_ms: Option<i64>,
    /// The memory of all models, if they are loaded on demand.
    pub(super) memory_budget: Option<i64>,
    pub(super) load_wait_secs: i64,
    /// Where copies of models from object stores are. Empty: the default.
    pub(super) cache_directory: String,
    pub(super) cache_byte_size: i64,
    pub(super) sequence_timeout_secs: i64,
    pub(super) load_models: BTreeSet<String>,
    pub(super) config_name: Option<String>,
    pub(super) agent_directory: String,
    pub(super) load_thread_count: i64,
    pub(super) load_retry_count: i64,
    pub(super) namespacing: bool,
    pub(super) serve_partial_models: bool,
    pub(super) gpu_instances_on_cpu: bool,
    pub(super) allow_overrides: bool,
}

#[derive(Debug, Default)]
pub(super) struct TypedHttp {
    pub(super) allow: bool,
    pub(super) address: String,
    pub(super) port: i64,
    pub(super) reuse_port: bool,
    pub(super) header_forward_pattern: String,
    pub(super) max_input_size: i64,
    pub(super) tls: TypedTls,
    pub(super) restrictions: RestrictionSettings,
    pub(super) describes_itself: bool,
    pub(super) shows_status: bool,
    pub(super) status_log_lines: i64,
    pub(super) origin_rules: OriginRules,
    pub(super) drain_status: DrainStatus,
}

#[derive(Debug, Default)]
pub(super) struct TypedGrpc {
    pub(super) allow: bool,
    pub(super) address: String,
    pub(super) port: i64,
    pub(super) reuse_port: bool,
    pub(super) reflection: bool,
    pub(super) header_forward_pattern: String,
    pub(super) max_response_pool_size: i64,
    pub(super) tls: TypedTls,
    pub(super) compression: String,
    pub(super) keepalive: TypedKeepalive,
    pub(super) restrictions: RestrictionSettings,
}

/// TLS of one port.
#[derive(Debug, Default)]
pub(super) struct TypedTls {
    pub(super) on: bool,
    pub(super) mutual: bool,
    pub(super) server_cert: String,
    pub(super) server_key: String,
    pub(super) root_cert: String,
}

/// What the ports have in common.
#[derive(Debug, Default)]
pub(super) struct TypedPorts {
    pub(super) unix_socket_mode: u32,
    /// Empty: clients need no keys.
    pub(super) api_key_file: String,
    /// Empty: revoked certificates are not known.
    pub(super) client_crl_files: Vec<String>,
    pub(super) allow_v1_client_certs: bool,
    /// 0: the server looks for changed files only after SIGHUP.
    pub(super) credential_reload_secs: i64,
}

#[derive(Debug, Default)]
pub(super) struct TypedKeepalive {
    pub(super) time_ms: i64,
    pub(super) timeout_ms: i64,
    pub(super) permit_without_calls: bool,
    pub(super) max_pings_without_data: i64,
    pub(super) min_recv_ping_interval_without_data_ms: i64,
    pub(super) max_ping_strikes: i64,
    pub(super) max_connection_age_ms: i64,
    pub(super) max_connection_age_grace_ms: i64,
}

/// Limits on what clients may hold and how long they may take. A time of `None` is no limit.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) max_connections: i64,
    /// 0: only the limit for all connections applies.
    pub(super) http_max_connections: i64,
    /// 0: only the limit for all connections applies.
    pub(super) grpc_max_connections: i64,
    pub(super) metrics_max_connections: i64,
    /// 0: a quarter of each limit.
    pub(super) max_connections_per_address: i64,
    pub(super) max_concurrent_streams: i64,
    pub(super) max_request_byte_size: i64,
    pub(super) header_timeout: Option<Duration>,
    pub(super) body_timeout: Option<Duration>,
    pub(super) body_min_byte_size: i64,
    pub(super) write_timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
}

/// The endpoints of managed platforms.
#[derive(Debug, Default)]
pub(super) struct TypedOutside {
    pub(super) allow_sagemaker: bool,
    pub(super) sagemaker_port: i64,
    pub(super) sagemaker_safe_range: Option<(i64, i64)>,
    pub(super) allow_vertex_ai: bool,
    pub(super) vertex_ai_port: i64,
    pub(super) vertex_ai_default_model: String,
}

#[derive(Debug, Default)]
pub(super) struct TypedMetrics {
    pub(super) allow: bool,
    pub(super) gpu: bool,
    pub(super) cpu: bool,
    /// Empty: the address of HTTP.
    pub(super) address: String,
    pub(super) port: i64,
    pub(super) tls: TypedTls,
    pub(super) counter_latencies: bool,
    pub(super) summary_latencies: bool,
    pub(super) histogram_latencies: bool,
    /// The default is true.
    pub(super) model_histograms: Option<bool>,
    /// The default is true.
    pub(super) openmetrics: Option<bool>,
    pub(super) interval_ms: i64,
    /// Replace the default quantiles, if there are any.
    pub(super) quantiles: Vec<f64>,
    /// Unknown keys of `--metrics-config`.
    pub(super) unknown_settings: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct TypedBackends {
    pub(super) directory: String,
    pub(super) settings: Vec<BackendSetting>,
    pub(super) onnxruntime_library: String,
}

#[derive(Debug, Default)]
pub(super) struct TypedCache {
    pub(super) directory: String,
    /// Settings, by the name of the cache.
    pub(super) configs: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
pub(super) struct TypedDevices {
    pub(super) pinned_pool_byte_size: i64,
    pub(super) cuda_pool_byte_sizes: BTreeMap<u32, u64>,
    pub(super) min_supported_compute_capability: f64,
    pub(super) load_gpu_limits: Vec<(i64, f64)>,
    pub(super) host_policies: BTreeMap<String, HostPolicy>,
    /// Unknown keys of `--host-policy`.
    pub(super) unknown_host_settings: Vec<String>,
    pub(super) allow_client_shm: bool,
    pub(super) most_client_regions: i64,
    pub(super) most_client_region_bytes: i64,
    pub(super) client_shm_in_place: bool,
}

impl TypedOptions {
    pub(super) fn was_given(&self, option: &str) -> bool {
        self.given.contains_key(option)
    }
}

/// Converts a number that the table keeps within the range of `T`.
pub(super) fn unsigned<T: TryFrom<i64>>(value: i64) -> T {
    T::try_from(value).ok().expect("the table refuses what is negative or too large here")
}

/// A text that an operator has given.
pub(super) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
