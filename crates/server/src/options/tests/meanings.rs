//! The settings that accepted command lines result in.

use std::time::Duration;

use engine::{RateLimitResource, ReadinessRule};
use frontend::{
    access::Category,
    grpc::{CompressionLevel, KeepaliveRules, PingRules},
    http::{InferenceType, SageMakerOptions},
    port::{
        BodyPace, ClientLimits,
        tls::{ClientCertificateRules, TlsOptions},
    },
};
use host::{HostPolicy, ProcessorSet};
use shared_memory::{RegionLimits, SharedMemoryOptions};

use super::super::*;
use super::{options, options_in};
use crate::logging::LogFormat;

#[test]
fn an_empty_command_line_means_tritons_defaults() {
    let options = options(&[]);
    let server = ServerSettings {
        id: "triton".into(),
        name_in_answers: None,
        exit_timeout: Duration::from_secs(30),
        shutdown_delay: Duration::ZERO,
        exit_on_error: true,
        readiness: ReadinessRule::AllModels,
    };
    assert_eq!(options.server, server);
    assert!(
        options.repository.paths.is_empty()
            && options.repository.auto_complete
            && options.repository.config_name.is_none()
    );
    assert_eq!((options.repository.load_threads.get(), options.repository.load_retries), (4, 0));
    let http = options.http.unwrap();
    let listen =
        |port| ListenSettings { address: "0.0.0.0".into(), port, reuse_port: false, socket_mode: 0o660 };
    assert_eq!((http.listen, http.tls), (listen(8000), None));
    let protocol = options.http_protocol;
    assert_eq!((protocol.max_input_size.get(), protocol.header_forward_pattern), (64 << 20, None));
    assert!(options.sagemaker.is_none() && options.vertex_ai.is_none());
    let reload_interval = Some(Duration::from_secs(10));
    assert_eq!(options.credentials, CredentialSettings { api_key_file: None, reload_interval });
    let grpc = options.grpc.unwrap();
    assert_eq!(grpc.listen, listen(8001));
    assert_eq!((grpc.most_unread_responses, grpc.max_concurrent_streams), (None, 1024));
    assert_eq!((grpc.tls, grpc.compression), (None, CompressionLevel::None));
    assert!(grpc.reflection);
    // The defaults of the front end are those of the command line, and they are Triton's.
    assert_eq!((grpc.keepalive, grpc.pings), (KeepaliveRules::default(), PingRules::default()));
    assert_eq!((grpc.max_connection_age, grpc.max_connection_age_grace), (None, None));
    assert_eq!(options.client_limits, ClientLimits::default());
    let connections = Connections { total: 10_000, http: None, grpc: None, metrics: 100, per_address: None };
    assert_eq!(options.connections, connections);
    let metrics = options.metrics.unwrap();
    assert_eq!((metrics.listen, metrics.tls), (listen(8002), None));
    assert_eq!(metrics.shown, engine::MetricsOptions::default());
    assert_eq!(options.logging.levels, crate::logging::Levels::default());
    assert!(options.logging.file.is_none() && options.logging.escape_messages);
    assert_eq!(
        (options.memory.pinned_pool_byte_size, options.memory.min_supported_compute_capability),
        (256 << 20, 0.0)
    );
    assert!(options.rate_limit.is_none() && options.host_policies.is_empty() && options.cache.is_none());
    assert_eq!((options.test_hooks, options.warnings), (TestHooks::default(), vec![]));
}

#[test]
fn repositories_are_a_sorted_set_whatever_they_are_called() {
    let options = options(&["--model-repository=/b", "--model-store", "/a", "--model-repository=/b"]);
    assert!(options.repository.paths.iter().eq(["/a", "/b"]));
}

#[test]
fn plug_ins_are_searched_in_tritons_directories_or_the_configured_ones() {
    let places = |line: &[&str]| {
        let ResolvedOptions { backends, repository, .. } = options(line);
        [backends.directory, repository.agent_directory].map(|path| path.display().to_string())
    };
    assert_eq!(places(&[]), ["/opt/tritonserver/backends", "/opt/tritonserver/repoagents"]);
    assert_eq!(places(&["--backend-directory=/b", "--repoagent-directory=/r"]), ["/b", "/r"]);
}

#[test]
fn the_later_of_two_values_counts_and_settings_keep_their_order() {
    let options = options(&[
        "--http-port=1",
        "--http-port=2",
        "--backend-config=k=v",
        "--backend-config=onnxruntime,a=b=c,d=e",
    ]);
    assert_eq!(options.http.unwrap().listen.port, 2);
    let setting = |backend: Option<&str>, key: &str, value: &str| BackendSetting {
        backend: backend.map(str::to_owned),
        key: key.into(),
        value: value.into(),
    };
    assert_eq!(
        options.backends.settings,
        [setting(None, "k", "v"), setting(Some("onnxruntime"), "a", "b=c,d=e")]
    );
}

#[test]
fn endpoints_that_are_not_allowed_are_absent() {
    let options = options(&["--allow-http=false", "--allow-grpc=off", "--allow-metrics=0"]);
    assert!(options.http.is_none() && options.grpc.is_none() && options.metrics.is_none());
}

#[test]
fn metrics_listen_on_the_address_of_http_by_default() {
    assert_eq!(options(&["--http-address=::1", "--allow-http=0"]).metrics.unwrap().listen.address, "::1");
    assert_eq!(
        options(&["--http-address=::1", "--metrics-address=::2"]).metrics.unwrap().listen.address,
        "::2"
    );
    assert!(!options(&["--metrics-config=counter_latencies=false"]).metrics.unwrap().shown.counter_latencies);
}

#[test]
fn each_setting_of_metrics_reaches_its_field() {
    let shown = |settings: &[&str]| {
        let line: Vec<_> = settings.iter().map(|setting| format!("--metrics-config={setting}")).collect();
        options(&line.iter().map(String::as_str).collect::<Vec<_>>()).metrics.unwrap().shown
    };
    let usual = engine::MetricsOptions::default;
    assert!(shown(&["summary_latencies=true"]).summary_latencies);
    assert!(shown(&["histogram_latencies=on"]).histogram_latencies);
    assert!(!shown(&["model_histograms=false"]).model_histograms);
    assert_eq!(shown(&["summary_latencies=false", "histogram_latencies=off", "model_histograms=1"]), usual());
    let quantiles = vec![0.25, 1.0];
    let given = "summary_quantiles=0.25:0.01,x,1:0,0.5,2:0.1";
    assert_eq!(shown(&[given]), engine::MetricsOptions { quantiles, ..usual() });
    assert_eq!(shown(&["summary_quantiles=x"]).quantiles, usual().quantiles);
    let offers_openmetrics = |line: &[&str]| options(line).metrics.unwrap().offers_openmetrics;
    assert!(offers_openmetrics(&[]) && !offers_openmetrics(&["--metrics-config=openmetrics=off"]));
    let option = format!("--metrics-config={given}");
    let warned = options(&[&option]).warnings;
    assert!(warned.len() == 3 && warned[0].contains("leaves 'x' out"), "{warned:?}");
    let interval = options(&["--metrics-interval-ms=100"]).metrics.unwrap().shown.interval;
    assert_eq!(interval, Duration::from_millis(100));
}

#[test]
fn an_access_log_has_a_file_or_stdout_and_a_rate() {
    let access_log = |line: &[&str]| options(line).access_log.map(|log| (log.path, log.rate));
    assert_eq!(access_log(&[]), None);
    assert_eq!(access_log(&["--access-log-rate=0.5"]), None);
    assert_eq!(access_log(&["--access-log=a/b"]), Some((Some("a/b".into()), 1.0)));
    assert_eq!(access_log(&["--access-log=-", "--access-log-rate=0.25"]), Some((None, 0.25)));
}

#[test]
fn mutual_encryption_also_switches_encryption_on() {
    for port in ["grpc", "http", "metrics"] {
        check_encryption(port);
    }
}

fn check_encryption(port: &str) {
    let tls = |option: &str| {
        let line = ["server-cert=c", "server-key=k", "root-cert=r", option]
            .map(|option| format!("--{port}-{option}"));
        let options = options(&line.each_ref().map(String::as_str));
        match port {
            "grpc" => options.grpc.unwrap().tls,
            "http" => options.http.unwrap().tls,
            _ => options.metrics.unwrap().tls,
        }
    };
    let expected = |client_root: Option<&str>| {
        Some(TlsOptions {
            certificate: "c".into(),
            key: "k".into(),
            client_roots: client_root.map(Into::into),
            client_rules: ClientCertificateRules::default(),
        })
    };
    assert_eq!(tls("use-ssl=true"), expected(None));
    assert_eq!(tls("use-ssl-mutual=true"), expected(Some("r")));
    assert_eq!(tls("use-ssl-mutual=false"), expected(None));
    assert_eq!(tls("use-ssl=false"), None);
}

#[test]
fn the_rules_for_client_certificates_hold_for_each_port_with_mutual_encryption() {
    let line = ["--client-crl-file=a", "--client-crl-file=b", "--allow-v1-client-certs=true"];
    let files = ["grpc", "http", "metrics"].map(|port| {
        ["server-cert=c", "server-key=k", "root-cert=r", "use-ssl-mutual=true"]
            .map(|option| format!("--{port}-{option}"))
    });
    let all: Vec<&str> = line.into_iter().chain(files.iter().flatten().map(String::as_str)).collect();
    let options = options(&all);
    let expected =
        ClientCertificateRules { revocation_lists: vec!["a".into(), "b".into()], allows_version_1: true };
    for tls in [options.grpc.unwrap().tls, options.http.unwrap().tls, options.metrics.unwrap().tls] {
        assert_eq!(tls.unwrap().client_rules, expected);
    }
}

#[test]
fn restricted_protocols_get_the_prefix_of_their_metadata() {
    let options = options(&[
        "--http-restricted-api=health,trace:k=v",
        "--grpc-restricted-protocol=model-repository:k=v",
    ]);
    let header = |name: &str| RequiredHeader { name: name.into(), value: "v".into() };
    assert_eq!(
        options.http_protocol.restrictions,
        RestrictionSettings::from([(Category::Health, header("k")), (Category::Trace, header("k"))])
    );
    let grpc = RestrictionSettings::from([(Category::ModelRepository, header("triton-grpc-protocol-k"))]);
    assert_eq!(options.grpc.unwrap().restrictions, grpc);
}

#[test]
fn auto_completion_is_off_if_either_option_says_so_and_the_deprecated_one_warns() {
    assert!(!options(&["--disable-auto-complete-config"]).repository.auto_complete);
    let strict = options(&["--strict-model-config=true"]);
    assert!(!strict.repository.auto_complete);
    assert_eq!(
        strict.warnings,
        ["Warning: '--strict-model-config' has been deprecated! Please use \
             '--disable-auto-complete-config' instead."]
    );
    let both = options(&["--strict-model-config=false", "--disable-auto-complete-config"]);
    assert!(!both.repository.auto_complete);
    assert_eq!(
        both.warnings[1],
        "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of \
             '--disable-auto-complete-config'!"
    );
    assert!(options(&["--strict-model-config=false"]).repository.auto_complete);
}

#[test]
fn every_deprecated_option_warns_once() {
    for option in ["trace-file=", "trace-level=off", "trace-rate=1", "trace-count=1", "trace-log-frequency=1"]
    {
        let warnings = options(&[&format!("--{option}")]).warnings;
        let name = option.split('=').next().unwrap();
        assert!(
            matches!(&warnings[..], [text] if text.starts_with(&format!("Warning: '--{name}' has been deprecated"))),
            "{warnings:?}"
        );
    }
    let overridden = options(&["--trace-rate=1", "--trace-config=rate=2"]).warnings;
    assert_eq!(
        overridden[1],
        "Warning: Overriding deprecated '--trace-rate' in favor of provided rate in --trace-config!"
    );
}

#[test]
fn every_option_for_the_rate_of_traces_takes_precedence_over_a_sampler() {
    let opentelemetry = [("OTEL_TRACES_SAMPLER".to_owned(), "always_on".to_owned())].into_iter().collect();
    let environment = ProcessEnvironment { opentelemetry, ..ProcessEnvironment::default() };
    let rate = |line: &[&str]| {
        let line = [&["--trace-config=mode=opentelemetry"], line].concat();
        options_in(&environment, &line).tracing.settings.rate
    };
    assert_eq!(rate(&[]), 1);
    assert_eq!(rate(&["--trace-rate=5"]), 5);
    assert_eq!(rate(&["--trace-rate=5", "--trace-config=rate=6"]), 6);
    assert_eq!(options(&[]).tracing.settings.rate, 1000);
}

#[test]
fn an_unknown_metrics_setting_is_reported() {
    let warnings = options(&["--metrics-config=colour=blue"]).warnings;
    assert_eq!(
        warnings,
        ["Warning: '--metrics-config' does not know the setting 'colour', it has no effect."]
    );
}

#[test]
fn out_of_range_numbers_are_limited() {
    let options = options(&["--exit-timeout-secs=-5", "--log-verbose=-1", "--grpc-max-connection-age=0"]);
    assert_eq!(options.server.exit_timeout, Duration::ZERO);
    assert_eq!((options.logging.levels.verbose, options.grpc.unwrap().max_connection_age), (0, None));
}

#[test]
fn numbers_and_addresses_that_triton_takes_have_its_meaning() {
    let options = options(&[
        "--http-address=",
        "--grpc-address=",
        "--http-thread-count=0",
        "--sagemaker-thread-count=0",
        "--vertex-ai-thread-count=0",
        "--metrics-interval-ms=0.5",
        "--grpc-max-connection-age=-1",
        "--grpc-max-connection-age-grace=-1",
    ]);
    let (grpc, metrics) = (options.grpc.unwrap(), options.metrics.unwrap());
    let addresses = [options.http.unwrap().listen.address, grpc.listen.address, metrics.listen.address];
    assert_eq!(addresses, ["0.0.0.0"; 3]);
    assert_eq!((grpc.max_connection_age, grpc.max_connection_age_grace), (None, None));
    assert_eq!(metrics.shown.interval, Duration::ZERO);
}

#[test]
fn the_shutdown_delay_is_whole_seconds_and_no_part_of_the_exit_timeout() {
    let server = options(&["--shutdown-delay-secs=15", "--exit-timeout-secs=20"]).server;
    assert_eq!(
        (server.shutdown_delay, server.exit_timeout),
        (Duration::from_secs(15), Duration::from_secs(20))
    );
}

#[test]
fn the_log_options_become_its_switches() {
    let line = ["--log-verbose=TRUE", "--log-info=off", "--log-format=ISO8601", "--log-file=/l"];
    let logging = options(&line).logging;
    assert_eq!(
        (logging.levels.verbose, logging.levels.info, logging.levels.format),
        (1, false, LogFormat::Iso8601)
    );
    assert_eq!(logging.file, Some("/l".into()));
}

#[test]
fn the_environment_fills_in_what_the_command_line_leaves_open() {
    let environment = ProcessEnvironment {
        storage_uri: Some("/aip".into()),
        escape_log_messages: Some("0".into()),
        delay_scheduler: Some("4".into()),
        backlog_delay_scheduler: Some("2".into()),
        onnxruntime_library: Some("/env.so".into()),
        openvino_library: Some("/ov.so".into()),
        torch_library: Some("/torch.so".into()),
        ..ProcessEnvironment::default()
    };
    let options = options_in(&environment, &[]);
    assert!(options.repository.paths.iter().eq(["/aip"]));
    assert!(!options.logging.escape_messages);
    assert_eq!(options.test_hooks, TestHooks { delay_scheduler: 4, backlog_delay_scheduler: 2 });
    assert_eq!(options.backends.onnxruntime_library, Some("/env.so".into()));
    assert_eq!(options.backends.openvino_library, Some("/ov.so".into()));
    assert_eq!(options.backends.torch_library, Some("/torch.so".into()));
    let options = options_in(&environment, &["--model-repository=/m", "--onnxruntime-library=/cli.so"]);
    assert!(options.repository.paths.iter().eq(["/m"]));
    assert_eq!(options.backends.onnxruntime_library, Some("/cli.so".into()));
}

#[test]
fn options_of_pings_reach_the_endpoint() {
    let set = options(&[
        "--grpc-keepalive-time=5",
        "--grpc-keepalive-timeout=6",
        "--grpc-keepalive-permit-without-calls=true",
        "--grpc-http2-max-pings-without-data=7",
        "--grpc-http2-min-recv-ping-interval-without-data=8",
        "--grpc-http2-max-ping-strikes=9",
    ]);
    let grpc = set.grpc.unwrap();
    let millis = Duration::from_millis;
    let keepalive = KeepaliveRules {
        time: Some(millis(5)),
        timeout: millis(6),
        permit_without_calls: true,
        max_pings_without_data: 7,
    };
    let pings = PingRules { min_interval: millis(8), max_strikes: 9, permit_without_calls: true };
    assert_eq!((grpc.keepalive, grpc.pings, set.warnings), (keepalive, pings, vec![]));
    let never = options(&["--grpc-keepalive-time=2147483647"]).grpc.unwrap();
    assert_eq!(never.keepalive.time, None);
}

#[test]
fn limits_of_clients_have_their_options() {
    let set = options(&[
        "--max-connections=5",
        "--http-max-connections=4",
        "--grpc-max-connections=3",
        "--metrics-max-connections=2",
        "--grpc-max-concurrent-streams=6",
        "--max-request-byte-size=7",
        "--client-header-timeout-secs=0.5",
        "--client-body-timeout-secs=2",
        "--client-body-min-byte-size=3",
        "--client-write-timeout-secs=0",
        "--client-idle-timeout-secs=4",
    ]);
    assert_eq!(
        set.connections,
        Connections { total: 5, http: Some(4), grpc: Some(3), metrics: 2, per_address: None }
    );
    assert_eq!(set.grpc.unwrap().max_concurrent_streams, 6);
    let expected = ClientLimits {
        header_timeout: Some(Duration::from_millis(500)),
        idle_timeout: Some(Duration::from_secs(4)),
        body_pace: Some(BodyPace { period: Duration::from_secs(2), min_bytes: 3 }),
        write_timeout: None,
        max_request_bytes: 7,
        ..ClientLimits::default()
    };
    assert_eq!(set.client_limits, expected);
    assert_eq!(options(&["--client-body-timeout-secs=0"]).client_limits.body_pace, None);
}

/// Scripts for Triton use these options. The server accepts them, and warns once that they have no effect.
#[test]
fn options_without_effect_are_accepted_and_warn() {
    let warnings = options(&["--http-thread-count=4", "--http-thread-count=8"]).warnings;
    let why = "all endpoints share one pool with a thread for each processor";
    assert_eq!(warnings, [format!("Warning: '--http-thread-count' has no effect: {why}.")]);
    for option in [
        "grpc-infer-thread-count=4",
        "grpc-infer-allocation-pool-size=4",
        "allow-gpu-metrics=true",
        "buffer-manager-thread-count=2",
        "pinned-memory-pool-byte-size=0",
        "cuda-memory-pool-byte-size=0:0",
        "cuda-virtual-address-size=0:0",
        "min-supported-compute-capability=7.5",
        "enable-peer-access=false",
        "model-load-gpu-limit=0:0.5",
        "sagemaker-thread-count=1",
        "vertex-ai-thread-count=1",
    ] {
        let warnings = options(&[&format!("--{option}")]).warnings;
        let name = option.split_once('=').unwrap().0;
        let begin = format!("Warning: '--{name}' has no effect: ");
        assert!(matches!(&warnings[..], [text] if text.starts_with(&begin)), "{option}: {warnings:?}");
        let why = warnings[0].strip_prefix(&begin).unwrap();
        let help = table::named(name).unwrap().description();
        assert!(help.contains(&format!("No effect: {why}")), "{help}");
    }
    assert!(options(&["--allow-gpu-metrics=false"]).warnings.is_empty());
}

#[test]
fn the_rate_limiter_gets_its_resources_in_their_order() {
    let resource = |name: &str, count, device| RateLimitResource { name: name.to_owned(), count, device };
    let line = ["--rate-limit-resource=R2:4", "--rate-limit-resource=R1:3:1", "--rate-limit-resource=R2:5"];
    let on = options(&[&["--rate-limit=EXECUTION_COUNT"], &line[..]].concat());
    let expected = vec![resource("R2", 4, None), resource("R1", 3, Some(1)), resource("R2", 5, None)];
    assert_eq!((on.rate_limit, on.warnings), (Some(expected), vec![]));
    assert_eq!(options(&["--rate-limit=execution_count"]).rate_limit, Some(vec![]));
}

#[test]
fn the_case_of_a_resource_counts() {
    let on = options(&["--rate-limit=execution_count", "--rate-limit-resource=R1:4"]).rate_limit.unwrap();
    assert_eq!(on[0].name, "R1");
}

#[test]
fn resources_without_a_rate_limiter_warn() {
    let off = options(&["--rate-limit=OFF", "--rate-limit-resource=R:1", "--rate-limit-resource=S:1"]);
    assert_eq!(off.rate_limit, None);
    assert_eq!(
        off.warnings,
        ["Warning: '--rate-limit-resource' has no effect without '--rate-limit=execution_count'."]
    );
}

#[test]
fn the_settings_of_the_cache_come_together_and_the_later_counts() {
    let line =
        ["--cache-config=redis,host=h", "--cache-config=redis,port=1", "--cache-config=redis,port=2,3"];
    let cache = |name: &str, settings: &[(&str, &str)], directory: &str| CacheSettings {
        name: name.to_owned(),
        settings: settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        directory: directory.into(),
    };
    let expected = cache("redis", &[("host", "h"), ("port", "2,3")], "/opt/tritonserver/caches");
    assert_eq!(options(&line).cache, Some(expected));
    let elsewhere = options(&["--cache-directory=/c", "--cache-config=local,size=5"]).cache;
    assert_eq!(elsewhere, Some(cache("local", &[("size", "5")], "/c")));
    assert_eq!(options(&["--cache-directory=/c"]).cache, None);
}

#[test]
fn the_deprecated_size_of_the_cache_is_that_of_the_local_one() {
    let old = options(&["--response-cache-byte-size=1048576"]);
    assert_eq!(old.cache, options(&["--cache-config=local,size=1048576"]).cache);
    assert_eq!(
        old.warnings,
        [
            "Warning: '--response-cache-byte-size' has been deprecated! It stands for the 'local' cache; please use \
             '--cache-config=local,size=1048576' instead."
        ]
    );
}

#[test]
fn the_settings_of_a_host_policy_come_together_and_the_later_counts() {
    let policies = options(&[
        "--host-policy=cpu,numa-node=1",
        "--host-policy=p,cpu-cores=5",
        "--host-policy=cpu,cpu-cores=0-2,4",
        "--host-policy=p,cpu-cores=6-7",
    ])
    .host_policies;
    let policy = |numa_node, cores| HostPolicy { numa_node, cpu_cores: ProcessorSet::parse(cores) };
    let expected = [("cpu".to_owned(), policy(Some(1), "0-2,4")), ("p".to_owned(), policy(None, "6-7"))];
    assert_eq!(policies, expected.into());
}

#[test]
fn the_endpoints_of_platforms_are_set_by_options_and_variables() {
    let environment = ProcessEnvironment {
        aip_mode: Some("PREDICTION".into()),
        aip_http_port: Some("9000".into()),
        aip_predict_route: Some("/p".into()),
        sagemaker_ping_mode: Some("live".into()),
        sagemaker_inference_type: Some("generate_stream".into()),
        sagemaker_default_model: Some("m".into()),
        ..ProcessEnvironment::default()
    };
    let options = options_in(&environment, &["--allow-sagemaker=true", "--allow-http=true"]);
    assert!(options.http.is_some() && options.grpc.is_none());
    let vertex_ai = options.vertex_ai.unwrap();
    assert_eq!((vertex_ai.listen.address.as_str(), vertex_ai.listen.port), ("0.0.0.0", 9000));
    assert_eq!((vertex_ai.predict_route.as_deref(), vertex_ai.health_route), (Some("/p"), None));
    assert_eq!(vertex_ai.default_model, None);
    let sagemaker = options.sagemaker.unwrap();
    assert_eq!(sagemaker.listen.port, 8080);
    let expected = SageMakerOptions {
        pings_liveness: true,
        inference: InferenceType::GenerateStream,
        default_model: "m".into(),
        model_root: "/opt/ml/models".into(),
    };
    assert_eq!(sagemaker.options, expected);
    let off = options_in(&environment, &["--allow-vertex-ai=false", "--vertex-ai-default-model=x"]);
    assert!(off.vertex_ai.is_none() && off.http.is_none());
}

#[test]
fn unix_sockets_have_permissions_and_no_port() {
    let line = [
        "--http-address=unix:/a",
        "--grpc-address=unix:/b",
        "--metrics-address=unix:/c",
        "--unix-socket-mode=600",
    ];
    let options = options(&line);
    let http = options.http.unwrap().listen;
    assert_eq!((http.address.as_str(), http.socket_mode), ("unix:/a", 0o600));
    assert_eq!(options.metrics.unwrap().listen.socket_mode, 0o600);
}

#[test]
fn clients_may_register_shared_memory_only_if_the_operator_says_so() {
    let regions = |line: &[&str]| options(line).shared_memory;
    assert_eq!(regions(&[]), None);
    assert_eq!(regions(&["--client-shm-in-place=true", "--max-client-shm-regions=3"]), None);
    let defaults = SharedMemoryOptions::default();
    assert_eq!(regions(&["--allow-client-shm=true"]), Some(defaults));
    assert_eq!((defaults.limits.regions, defaults.limits.bytes, defaults.in_place), (1024, 16 << 30, false));
    let limits = RegionLimits { regions: 3, bytes: 4096 };
    let line = [
        "--allow-client-shm=true",
        "--max-client-shm-regions=3",
        "--max-client-shm-byte-size=4096",
        "--client-shm-in-place=true",
    ];
    assert_eq!(regions(&line), Some(SharedMemoryOptions { limits, in_place: true }));
}

#[test]
fn reflection_can_be_switched_off() {
    assert!(!options(&["--grpc-reflection=false"]).grpc.unwrap().reflection);
}
