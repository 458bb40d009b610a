//! The command line as a whole: recorded refusals, the text of every rule, defaults and settings.

use super::typed::TypedOptions;
use super::*;
use std::collections::BTreeSet;
use std::ffi::OsString;

mod layers;
mod meanings;
mod ports;
mod refusals;
mod start_lines;

/// Every option of `tritonserver`, deprecated options included.
const TRITON_OPTIONS: &str = "help id exit-timeout-secs exit-on-error strict-readiness disable-auto-complete-config \
             model-repository model-store model-control-mode repository-poll-secs load-model \
             model-config-name model-load-thread-count model-load-retry-count model-namespacing \
             enable-peer-access model-load-gpu-limit log-verbose log-info log-warning log-error \
             log-format log-file allow-http http-address http-port reuse-http-port \
             http-header-forward-pattern http-thread-count http-max-input-size http-restricted-api \
             allow-grpc grpc-address grpc-port reuse-grpc-port grpc-header-forward-pattern \
             grpc-infer-thread-count grpc-infer-allocation-pool-size grpc-max-response-pool-size \
             grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert grpc-server-key grpc-root-cert \
             grpc-infer-response-compression-level grpc-keepalive-time grpc-keepalive-timeout \
             grpc-keepalive-permit-without-calls grpc-http2-max-pings-without-data \
             grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes \
             grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol \
             allow-sagemaker sagemaker-port sagemaker-thread-count sagemaker-safe-port-range \
             allow-vertex-ai vertex-ai-port vertex-ai-thread-count vertex-ai-default-model allow-metrics \
             allow-gpu-metrics allow-cpu-metrics metrics-address metrics-port metrics-interval-ms \
             metrics-config trace-config cache-config cache-directory rate-limit rate-limit-resource \
             pinned-memory-pool-byte-size cuda-memory-pool-byte-size cuda-virtual-address-size \
             min-supported-compute-capability buffer-manager-thread-count host-policy backend-directory \
             repoagent-directory backend-config allow-client-shm strict-model-config \
             response-cache-byte-size trace-file trace-level trace-rate trace-count trace-log-frequency";

const OWN_OPTIONS: &str = "version color config access-log access-log-rate onnxruntime-library max-inflight-bytes max-unread-response-bytes max-intermediate-bytes max-client-shm-regions max-client-shm-byte-size client-shm-in-place \
             gpu-instances-on-cpu serve-partial-models repository-settle-ms model-repository-cache-directory \
             model-repository-cache-byte-size strict-readiness-scope model-memory-budget model-load-wait-secs reload-sequence-timeout-secs shutdown-delay-secs single-model drain-status max-connections http-openapi grpc-reflection allow-status-page status-log-lines http-max-connections grpc-max-connections \
             metrics-max-connections grpc-max-concurrent-streams max-request-byte-size \
             client-header-timeout-secs client-body-timeout-secs client-body-min-byte-size \
             client-write-timeout-secs client-idle-timeout-secs \
             http-use-ssl http-use-ssl-mutual http-server-cert http-server-key http-root-cert \
             metrics-use-ssl metrics-use-ssl-mutual metrics-server-cert metrics-server-key metrics-root-cert \
             api-key-file credential-reload-secs client-crl-file allow-v1-client-certs unix-socket-mode \
             http-allowed-origins http-allowed-hosts allow-load-overrides max-connections-per-address";

fn parse_in(environment: &ProcessEnvironment, line: &[&str]) -> Result<Invocation, String> {
    parse(line.iter().map(OsString::from), environment).map_err(|error| error.to_string())
}

fn options_in(environment: &ProcessEnvironment, line: &[&str]) -> ResolvedOptions {
    match parse_in(environment, line) {
        Ok(Invocation::Serve(options)) => *options,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn options(line: &[&str]) -> ResolvedOptions {
    options_in(&ProcessEnvironment::default(), line)
}

#[test]
fn the_table_has_every_option_of_triton_and_ours_once() {
    let expected: BTreeSet<_> =
        TRITON_OPTIONS.split_whitespace().chain(OWN_OPTIONS.split_whitespace()).collect();
    let names: Vec<_> = table::all().map(|option| option.name).collect();
    assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(names.len(), expected.len());
}

#[test]
fn every_default_in_the_table_obeys_the_rule_of_its_option() {
    let mut typed = TypedOptions::default();
    for option in table::all() {
        if let Some(default) = option.default_value() {
            assert_eq!(option.apply(&mut typed, default), Ok(()), "--{}", option.name);
        }
    }
}

#[test]
fn the_help_names_every_option_under_the_headings_in_order() {
    let Ok(Invocation::Print(help)) = parse_in(&ProcessEnvironment::default(), &["--he", "--nonsense"])
    else {
        panic!("help is not printed")
    };
    for option in table::all() {
        let line = format!("\n  --{}", option.name);
        assert!(
            help.contains(&format!("{line} ")) || help.contains(&format!("{line}\n")),
            "--{}",
            option.name
        );
    }
    let mut rest = help.as_str();
    let headings = "Server,Logging,Model \
             Repository,HTTP,GRPC,Sagemaker,Vertex,Metrics,Tracing,Backend,Repository Agent,Response \
             Cache,Rate Limiter,Memory/Device Management,Shared Memory,DEPRECATED,Connections,Nereid";
    for heading in headings.split(',') {
        rest =
            rest.split_once(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("no heading {heading}")).1;
    }
    assert!(help.lines().all(|line| line.len() <= 120));
}

#[test]
fn the_short_help_is_one_screen_with_the_commands_first() {
    let Ok(Invocation::Print(screen)) = parse_in(&ProcessEnvironment::default(), &["-h"]) else {
        panic!("help is not printed")
    };
    assert!(screen.lines().count() <= 40 && screen.lines().all(|line| line.len() <= 80), "{screen}");
    let (before_options, _) = screen.split_once("\nOptions").unwrap();
    for command in commands::names() {
        assert!(before_options.contains(&format!("\n  {command} ")), "{command}");
    }
    for word in screen.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help,") {
        let name = word.trim_start_matches('-').trim_end_matches([':', ',']);
        assert!(table::named(name).is_some(), "{word}");
    }
}

#[test]
fn the_help_ends_with_the_exit_codes() {
    let help = usage();
    let (_, codes) = help.split_once("\nExit codes:\n").unwrap();
    assert!(codes.starts_with("  0 ") && codes.contains("\n  130 "), "{codes}");
}

#[test]
fn the_help_says_what_has_no_effect() {
    let help = usage().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("Default: 0. No effect: there are no threads for copying inputs and outputs."));
}

#[test]
fn the_help_names_the_load_generator_and_the_values_of_enumerations() {
    let help = usage();
    assert!(help.contains("\n  nereid perf <model>"), "{help}");
    assert!(help.contains("\n  nereid api-key [--hash]"), "{help}");
    for line in [
        "  --model-control-mode <none|poll|explicit>\n",
        "  --log-format <default|ISO8601|json>\n",
        "  --rate-limit <off|execution_count>\n",
        "  --grpc-infer-response-compression-level <none|low|medium|high>\n",
    ] {
        assert!(help.contains(line), "{line}");
    }
}

#[test]
fn the_version_names_the_triton_release_it_follows() {
    let Ok(Invocation::Print(text)) = parse_in(&ProcessEnvironment::default(), &["--version"]) else {
        panic!("version is not printed")
    };
    assert_eq!(text.lines().next(), Some(concat!("nereid ", env!("CARGO_PKG_VERSION"))));
    assert!(text.contains("2.73.0") && text.ends_with('\n'));
}

#[test]
fn the_options_that_may_be_given_several_times_are_known() {
    for option in table::all() {
        if option.description().contains("May be given several times") {
            assert!(option.may_repeat(), "--{}", option.name);
        }
    }
    assert!(table::all().filter(|option| option.may_repeat()).count() >= 15);
}

/// As Triton, which waits no time then.
#[test]
fn a_negative_exit_timeout_is_none() {
    let options = options(&["--model-repository=/m", "--exit-timeout-secs=-5"]);
    assert_eq!(options.server.exit_timeout, std::time::Duration::ZERO);
}
