//! Turns typed options into settings: the rules between options, the refusals, and the defaults that depend on other
//! options.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use engine::{ControlMode, LoadPolicy, MetricsOptions, OnDemandOptions, Polling, ReadinessRule};
use frontend::{
    grpc::{CompressionLevel, KeepaliveRules, PingRules},
    port::{
        BodyPace, ClientLimits,
        tls::{ClientCertificateRules, TlsOptions},
        unix_path,
    },
};
use host::MemoryLimits;
use shared_memory::{RegionLimits, SharedMemoryOptions};

use super::environment::ProcessEnvironment;
use super::meaning::{
    AccessLogSettings, BackendsSettings, CacheSettings, Connections, CredentialSettings, GrpcSettings,
    HttpProtocolSettings, HttpSettings, ListenSettings, MemorySettings, MetricsSettings, RepositorySettings,
    ResolvedOptions, ServerSettings, TestHooks,
};
use super::refusal::BadOption;
use super::table::INT_MAX;
use super::typed::{self, TypedOptions, non_empty, unsigned};
use super::values::is_url;
use super::{clash, managed, plain_keys};
use crate::color::ColorChoice;
use crate::logging::{Levels, LogConfig};

/// Turns a complete command line into options.
///
/// # Errors
/// First the contradictions of the command line, then what this build does not have.
pub(super) fn resolve(
    mut typed: TypedOptions,
    environment: &ProcessEnvironment,
) -> Result<ResolvedOptions, BadOption> {
    if typed.repository.paths.is_empty() && typed.repository.model_files.is_empty() {
        typed.repository.paths.extend(environment.storage_uri.clone());
    }
    check_between(&mut typed)?;
    check_build(&typed)?;
    let test_hooks = TestHooks {
        delay_scheduler: environment.delay_scheduler()?,
        backlog_delay_scheduler: environment.backlog_delay_scheduler()?,
    };
    let name_in_answers =
        if typed.was_given("id") { frontend::ServerName::new(&typed.server.id) } else { None };
    let metrics = metrics(&mut typed)?;
    let credentials = credentials(&typed.ports);
    let has_http = has_http(&typed);
    let http_tls = std::mem::take(&mut typed.http.tls);
    let http_tls = if has_http { tls("http", http_tls, &typed.ports)? } else { None };
    let sagemaker = managed::sagemaker(&typed, http_tls.clone(), environment);
    let vertex_ai = managed::vertex_ai(&typed, http_tls.clone(), environment);
    let http_protocol = http_protocol(&mut typed.http);
    let ports = typed.ports;
    let tracing = typed.trace.resolve(environment, &mut typed.warnings);
    let limits = limits(&typed.server);
    let server = ServerSettings {
        id: typed.server.id,
        name_in_answers,
        exit_timeout: seconds(typed.server.exit_timeout_secs),
        shutdown_delay: Duration::from_secs(unsigned(typed.server.shutdown_delay_secs)),
        exit_on_error: typed.repository.exit_on_error,
        readiness: readiness(&typed.repository),
    };
    Ok(ResolvedOptions {
        server,
        access_log: access_log(&typed.logging),
        color: color(&typed.logging, environment),
        logging: logging(typed.logging, environment),
        metrics,
        http: typed.http.allow.then(|| http(typed.http, http_tls, &ports)),
        http_protocol,
        sagemaker,
        vertex_ai,
        credentials,
        grpc: if typed.grpc.allow {
            Some(grpc(typed.grpc, unsigned(typed.clients.max_concurrent_streams), &ports)?)
        } else {
            None
        },
        client_limits: client_limits(&typed.clients),
        connections: connections(&typed.clients),
        backends: backends(typed.backends, environment),
        cache: cache(typed.cache)?,
        rate_limit: typed.rate_limit_on.then_some(typed.rate_limit_resources),
        limits,
        shared_memory: shared_memory(&typed.devices),
        tracing,
        host_policies: typed.devices.host_policies,
        memory: MemorySettings {
            pinned_pool_byte_size: unsigned(typed.devices.pinned_pool_byte_size),
            cuda_pool_byte_sizes: typed.devices.cuda_pool_byte_sizes,
            min_supported_compute_capability: typed.devices.min_supported_compute_capability,
        },
        repository: repository(typed.repository),
        test_hooks,
        given: typed.given,
        warnings: typed.warnings,
    })
}

/// The models that must be ready when the server is.
const fn readiness(repository: &typed::TypedRepository) -> ReadinessRule {
    match (repository.strict_readiness, repository.startup_readiness) {
        (false, _) => ReadinessRule::NoModel,
        (true, false) => ReadinessRule::AllModels,
        (true, true) => ReadinessRule::StartupModels,
    }
}

/// Whether texts on terminals have colours.
fn color(logging: &typed::TypedLogging, environment: &ProcessEnvironment) -> ColorChoice {
    match logging.color {
        ColorChoice::Auto => environment.color(),
        chosen @ (ColorChoice::Always | ColorChoice::Never) => chosen,
    }
}

/// Whether a port is served that has the encryption of HTTP.
fn has_http(typed: &TypedOptions) -> bool {
    typed.http.allow || typed.outside.allow_sagemaker || typed.outside.allow_vertex_ai
}

/// Checks the rules that concern more than one option.
fn check_between(typed: &mut TypedOptions) -> Result<(), BadOption> {
    if typed.was_given("allow-gpu-metrics") && typed.metrics.gpu {
        let text = "Warning: '--allow-gpu-metrics' has no effect: no graphics processors are used.";
        typed.warnings.push(text.into());
    }
    // Who names revoked certificates must not believe that they are refused where no certificate is asked for.
    let asks_clients = [
        (has_http(typed), &typed.http.tls),
        (typed.grpc.allow, &typed.grpc.tls),
        (typed.metrics.allow, &typed.metrics.tls),
    ]
    .iter()
    .any(|(is_served, tls)| *is_served && tls.on && tls.mutual);
    for option in ["client-crl-file", "allow-v1-client-certs"] {
        if typed.was_given(option) && !asks_clients {
            return Err(BadOption::plain(format!(
                "Error: '--{option}' needs '--grpc-use-ssl-mutual', '--http-use-ssl-mutual' or '--metrics-use-ssl-mutual'."
            )));
        }
    }
    let trace_warnings = typed.trace.check(|option| typed.given.contains_key(option))?;
    typed.warnings.extend(trace_warnings);
    for setting in &typed.metrics.unknown_settings {
        typed.warnings.push(format!(
            "Warning: '--metrics-config' does not know the setting '{setting}', it has no effect."
        ));
    }
    if typed.was_given("rate-limit-resource") && !typed.rate_limit_on {
        typed.warnings.push(
            "Warning: '--rate-limit-resource' has no effect without '--rate-limit=execution_count'.".into(),
        );
    }
    if typed.repository.disable_auto_complete && typed.repository.strict_model_config == Some(false) {
        typed.warnings.push(
            "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of \
             '--disable-auto-complete-config'!"
                .into(),
        );
    }
    if typed.was_given("response-cache-byte-size") && typed.was_given("cache-config") {
        return Err(BadOption::plain(
            "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. \
             Please provide one or the other.",
        ));
    }
    if typed.metrics.allow && typed.metrics.address.is_empty() && unix_path(&typed.http.address).is_some() {
        return Err(BadOption::plain(
            "Error: A unix socket as '--http-address' requires setting '--metrics-address' or \
             '--allow-metrics=false' as well.",
        ));
    }
    if typed.was_given("load-model") && typed.repository.control_mode != ControlMode::Explicit {
        return Err(BadOption::plain(
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
        ));
    }
    if typed.repository.single_model.is_some() && !has_one_local_place(&typed.repository) {
        return Err(BadOption::plain(
            "Error: Use of '--single-model' requires one '--model-repository', which is a directory or an ONNX file of \
             this machine.",
        ));
    }
    check_memory_budget(typed)?;
    let plain_keys = plain_keys::warning(typed);
    typed.warnings.extend(plain_keys);
    Ok(())
}

/// Checks what goes together with models that are loaded on demand.
fn check_memory_budget(typed: &mut TypedOptions) -> Result<(), BadOption> {
    if typed.repository.memory_budget.is_some() {
        if typed.repository.control_mode == ControlMode::Poll {
            return Err(BadOption::plain(
                "Error: '--model-memory-budget' cannot be used with '--model-control-mode=poll'. Models are read from the \
                 repository each time they are loaded.",
            ));
        }
        if typed.repository.namespacing {
            return Err(BadOption::plain(
                "Error: '--model-memory-budget' cannot be used with '--model-namespacing'.",
            ));
        }
    } else if typed.was_given("model-load-wait-secs") {
        let text = "Warning: '--model-load-wait-secs' has no effect without '--model-memory-budget'.";
        typed.warnings.push(text.into());
    }
    Ok(())
}

fn has_one_local_place(repository: &typed::TypedRepository) -> bool {
    let is_local = repository.paths.iter().all(|path| !is_url(path));
    repository.paths.len() + repository.model_files.len() == 1 && is_local
}

/// Checks the rules that Triton checks when it builds its server from the options.
fn check_build(typed: &TypedOptions) -> Result<(), BadOption> {
    clash::check(typed).map_err(BadOption::build)?;
    for (device, fraction) in &typed.devices.load_gpu_limits {
        let fault = if *device < 0 {
            format!("expects device ID >= 0, got {device}")
        } else if !(0.0..=1.0).contains(fraction) {
            format!("expects limit fraction to be in range [0.0, 1.0], got {fraction}")
        } else {
            continue;
        };
        return Err(BadOption::build(format!(
            "error: setting model load GPU limit: Invalid argument - {fault}"
        )));
    }
    match typed.devices.unknown_host_settings.first() {
        None => Ok(()),
        Some(key) => Err(BadOption::build(format!(
            "error: setting host policy: Unsupported - Unsupported host policy setting '{key}' is \
             specified, supported settings are 'numa-node', 'cpu-cores'"
        ))),
    }
}

fn logging(typed: typed::TypedLogging, environment: &ProcessEnvironment) -> LogConfig {
    LogConfig {
        levels: Levels {
            info: typed.info,
            warning: typed.warning,
            error: typed.error,
            verbose: unsigned(typed.verbose),
            format: typed.format,
        },
        file: path(typed.file),
        escape_messages: environment.escape_log_messages.as_deref() != Some("0"),
    }
}

fn access_log(typed: &typed::TypedLogging) -> Option<AccessLogSettings> {
    let path = match typed.access_log.as_str() {
        "" => return None,
        "-" => None,
        path => Some(PathBuf::from(path)),
    };
    Some(AccessLogSettings { path, rate: typed.access_log_rate })
}

fn repository(typed: typed::TypedRepository) -> RepositorySettings {
    RepositorySettings {
        paths: typed.paths,
        model_files: typed.model_files,
        single_model: typed.single_model,
        auto_complete: !(typed.disable_auto_complete || typed.strict_model_config == Some(true)),
        config_name: typed.config_name,
        agent_directory: PathBuf::from(typed.agent_directory),
        load_threads: at_least_one(typed.load_thread_count),
        load_retries: unsigned(typed.load_retry_count),
        load_policy: LoadPolicy {
            partial_models: typed.serve_partial_models,
            gpu_groups_on_cpu: typed.gpu_instances_on_cpu,
            refuse_overrides: !typed.allow_overrides,
        },
        control_mode: typed.control_mode,
        cache_directory: (!typed.cache_directory.is_empty()).then(|| typed.cache_directory.into()),
        cache_byte_size: unsigned(typed.cache_byte_size),
        polling: polling(typed.poll_secs, typed.settle_ms),
        on_demand: typed.memory_budget.map(|bytes| OnDemandOptions {
            memory_budget: unsigned(bytes),
            load_wait: Duration::from_secs(unsigned(typed.load_wait_secs)),
        }),
        sequence_timeout: Duration::from_secs(unsigned(typed.sequence_timeout_secs)),
        startup_models: typed.load_models,
        namespacing: typed.namespacing,
    }
}

/// The settle time is at most the period, unless it is given: a change then takes effect within two periods.
fn polling(poll_secs: i64, settle_ms: Option<i64>) -> Polling {
    const SETTLE: Duration = Duration::from_secs(2);
    // As Triton: a negative interval is none.
    let period = Duration::from_secs(u64::try_from(poll_secs).unwrap_or(0));
    let settle = match settle_ms {
        Some(settle) => Duration::from_millis(u64::try_from(settle).unwrap_or(0)),
        None => period.min(SETTLE),
    };
    Polling { period, settle }
}

fn limits(typed: &typed::TypedServer) -> MemoryLimits {
    let bytes = |given: Option<i64>, default| given.map_or(default, unsigned);
    let MemoryLimits { inflight_bytes, unread_response_bytes, intermediate_bytes } = MemoryLimits::default();
    MemoryLimits {
        inflight_bytes: bytes(typed.max_inflight_bytes, inflight_bytes),
        unread_response_bytes: bytes(typed.max_unread_response_bytes, unread_response_bytes),
        intermediate_bytes: bytes(typed.max_intermediate_bytes, intermediate_bytes),
    }
}

fn shared_memory(typed: &typed::TypedDevices) -> Option<SharedMemoryOptions> {
    let limits = RegionLimits {
        regions: unsigned(typed.most_client_regions),
        bytes: unsigned(typed.most_client_region_bytes),
    };
    typed.allow_client_shm.then_some(SharedMemoryOptions { limits, in_place: typed.client_shm_in_place })
}

fn http(typed: typed::TypedHttp, tls: Option<TlsOptions>, ports: &typed::TypedPorts) -> HttpSettings {
    HttpSettings {
        listen: ListenSettings {
            address: typed.address,
            port: unsigned(typed.port),
            reuse_port: typed.reuse_port,
            socket_mode: ports.unix_socket_mode,
        },
        tls,
    }
}

fn http_protocol(typed: &mut typed::TypedHttp) -> HttpProtocolSettings {
    HttpProtocolSettings {
        max_input_size: at_least_one(typed.max_input_size),
        header_forward_pattern: non_empty(std::mem::take(&mut typed.header_forward_pattern)),
        restrictions: std::mem::take(&mut typed.restrictions),
        drain_status: typed.drain_status,
        describes_itself: typed.describes_itself,
        shows_status: typed.shows_status,
        origin_rules: std::mem::take(&mut typed.origin_rules),
        status_log_lines: usize::try_from(typed.status_log_lines).ok().and_then(NonZeroUsize::new),
    }
}

fn credentials(typed: &typed::TypedPorts) -> CredentialSettings {
    CredentialSettings {
        api_key_file: path(typed.api_key_file.clone()),
        reload_interval: Some(seconds(typed.credential_reload_secs)).filter(|interval| !interval.is_zero()),
    }
}

fn grpc(
    typed: typed::TypedGrpc,
    max_concurrent_streams: u32,
    ports: &typed::TypedPorts,
) -> Result<GrpcSettings, BadOption> {
    let keepalive = typed.keepalive;
    Ok(GrpcSettings {
        tls: tls("grpc", typed.tls, ports)?,
        listen: ListenSettings {
            address: typed.address,
            port: unsigned(typed.port),
            reuse_port: typed.reuse_port,
            socket_mode: ports.unix_socket_mode,
        },
        most_unread_responses: (typed.max_response_pool_size < INT_MAX)
            .then(|| at_least_one(typed.max_response_pool_size)),
        compression: match typed.compression.as_str() {
            "low" => CompressionLevel::Low,
            "medium" => CompressionLevel::Medium,
            "high" => CompressionLevel::High,
            _ => CompressionLevel::None,
        },
        keepalive: KeepaliveRules {
            // As Triton: C's largest int means "never". gRPC waits for at least one millisecond.
            time: Some(keepalive.time_ms)
                .filter(|time| *time < i64::from(i32::MAX))
                .map(|time| milliseconds(time.max(1))),
            timeout: milliseconds(keepalive.timeout_ms),
            permit_without_calls: keepalive.permit_without_calls,
            max_pings_without_data: unsigned(keepalive.max_pings_without_data),
        },
        pings: PingRules {
            min_interval: milliseconds(keepalive.min_recv_ping_interval_without_data_ms),
            max_strikes: unsigned(keepalive.max_ping_strikes),
            permit_without_calls: keepalive.permit_without_calls,
        },
        max_connection_age: limit(keepalive.max_connection_age_ms),
        max_connection_age_grace: limit(keepalive.max_connection_age_grace_ms),
        max_concurrent_streams,
        reflection: typed.reflection,
        header_forward_pattern: non_empty(typed.header_forward_pattern),
        restrictions: typed.restrictions,
    })
}

/// TLS needs its files. A refusal of the command line is clearer than a listener that fails (P-W22). The names of the
/// options begin with `port`.
fn tls(
    port: &str,
    typed: typed::TypedTls,
    ports: &typed::TypedPorts,
) -> Result<Option<TlsOptions>, BadOption> {
    let required = |file: String, option: &str, by: &str| {
        path(file).ok_or_else(|| {
            BadOption::plain(format!(
                "Error: Use of '--{port}-{by}' requires setting '--{port}-{option}' as well."
            ))
        })
    };
    if !typed.on {
        return Ok(None);
    }
    Ok(Some(TlsOptions {
        certificate: required(typed.server_cert, "server-cert", "use-ssl")?,
        key: required(typed.server_key, "server-key", "use-ssl")?,
        client_roots: if typed.mutual {
            Some(required(typed.root_cert, "root-cert", "use-ssl-mutual")?)
        } else {
            None
        },
        client_rules: ClientCertificateRules {
            revocation_lists: ports.client_crl_files.iter().cloned().filter_map(path).collect(),
            allows_version_1: ports.allow_v1_client_certs,
        },
    }))
}

fn client_limits(typed: &typed::Clients) -> ClientLimits {
    ClientLimits {
        header_timeout: typed.header_timeout,
        idle_timeout: typed.idle_timeout,
        body_pace: typed
            .body_timeout
            .map(|period| BodyPace { period, min_bytes: unsigned(typed.body_min_byte_size) }),
        write_timeout: typed.write_timeout,
        max_request_bytes: unsigned(typed.max_request_byte_size),
        ..ClientLimits::default()
    }
}

fn connections(typed: &typed::Clients) -> Connections {
    Connections {
        total: unsigned(typed.max_connections),
        http: Some(unsigned(typed.http_max_connections)).filter(|limit| *limit > 0),
        grpc: Some(unsigned(typed.grpc_max_connections)).filter(|limit| *limit > 0),
        metrics: unsigned(typed.metrics_max_connections),
        per_address: Some(unsigned(typed.max_connections_per_address)).filter(|limit| *limit > 0),
    }
}

fn metrics(typed: &mut TypedOptions) -> Result<Option<MetricsSettings>, BadOption> {
    let TypedOptions { metrics, http, ports, .. } = typed;
    if !metrics.allow {
        return Ok(None);
    }
    let address = if metrics.address.is_empty() { &http.address } else { &metrics.address };
    Ok(Some(MetricsSettings {
        listen: ListenSettings {
            address: address.clone(),
            port: unsigned(metrics.port),
            reuse_port: false,
            socket_mode: ports.unix_socket_mode,
        },
        tls: tls("metrics", std::mem::take(&mut metrics.tls), ports)?,
        shown: MetricsOptions {
            counter_latencies: metrics.counter_latencies,
            summary_latencies: metrics.summary_latencies,
            histogram_latencies: metrics.histogram_latencies,
            quantiles: if metrics.quantiles.is_empty() {
                MetricsOptions::default().quantiles
            } else {
                metrics.quantiles.clone()
            },
            model_histograms: metrics.model_histograms.unwrap_or(true),
            host: metrics.cpu,
            interval: milliseconds(metrics.interval_ms),
        },
        offers_openmetrics: metrics.openmetrics.unwrap_or(true),
    }))
}

fn backends(typed: typed::TypedBackends, environment: &ProcessEnvironment) -> BackendsSettings {
    BackendsSettings {
        directory: PathBuf::from(typed.directory),
        settings: typed.settings,
        onnxruntime_library: path(typed.onnxruntime_library)
            .or_else(|| environment.onnxruntime_library.clone()),
        openvino_library: environment.openvino_library.clone(),
        torch_library: environment.torch_library.clone(),
        python_prefixes: environment.python_prefixes(),
    }
}

fn cache(typed: typed::TypedCache) -> Result<Option<CacheSettings>, BadOption> {
    let directory = path(typed.directory)
        .ok_or_else(|| BadOption::framed("cache-directory", "cache directory can not be empty"))?;
    let mut configs = typed.configs.into_iter();
    let Some((name, settings)) = configs.next() else { return Ok(None) };
    match configs.next() {
        None => Ok(Some(CacheSettings { name, settings, directory })),
        Some(_) => Err(BadOption::plain(
            "found multiple cache configurations, but only a single cache is currently supported",
        )),
    }
}

/// Converts a number that the table keeps above 0.
fn at_least_one(value: i64) -> NonZeroUsize {
    NonZeroUsize::new(unsigned(value)).expect("the table refuses 0 here")
}

fn seconds(value: i64) -> Duration {
    Duration::from_secs(unsigned(value))
}

/// As Triton: 0 and -1 select gRPC's own default, which is no limit.
fn limit(value: i64) -> Option<Duration> {
    (value > 0).then(|| milliseconds(value))
}

fn milliseconds(value: i64) -> Duration {
    Duration::from_millis(unsigned(value))
}

fn path(text: String) -> Option<PathBuf> {
    non_empty(text).map(PathBuf::from)
}
