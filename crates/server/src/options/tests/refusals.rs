//! Refused command lines, and the texts of the refusals.

use super::super::*;
use super::{options, parse_in};
use crate::color::ColorChoice;

fn refusal(line: &[&str]) -> String {
    match parse_in(&ProcessEnvironment::default(), line) {
        Err(text) => text,
        Ok(_) => panic!("{line:?} is accepted"),
    }
}

/// Checks that `line` is refused with this text, in the frame of `option`.
#[track_caller]
fn check_framed(line: &[&str], option: &str, text: &str) {
    let refusal = refusal(line);
    let expected = format!("error: Bad option: \"--{option}\".\n{text}\n");
    assert!(refusal.starts_with(&expected), "{line:?}: {refusal:?} does not begin with {expected:?}");
}

/// Checks that `line` is refused with this text, without the frame of an option.
#[track_caller]
fn check_plain(line: &[&str], text: &str) {
    let refusal = refusal(line);
    let rest =
        refusal.trim_start_matches("error: ").trim_start_matches("Failed to build the server's options:\n");
    let text = text.trim_start_matches("Failed to build the server's options:\n");
    let rest = rest.strip_prefix(text);
    assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\n')), "{line:?}: {refusal:?}");
}

#[test]
fn recorded_command_lines_are_refused_in_the_recorded_words() {
    for (line, option, text) in [
        (&["--log-info", "maybe"][..], "log-info", "invalid value for bool option: maybe"),
        (&["--model-control-mode", "foo"], "model-control-mode", "invalid argument for --model-control-mode"),
        (
            &["--grpc-infer-response-compression-level", "zz"],
            "grpc-infer-response-compression-level",
            "invalid argument for --grpc_infer_response_compression_level",
        ),
        (
            &["--rate-limit-resource", "a"],
            "rate-limit-resource",
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or \
             '<resource_name>:<count>'. Got a",
        ),
        (
            &["--metrics-config", "a,b=c"],
            "metrics-config",
            "--metrics-config option format is <setting>=<value>. Got a,b=c",
        ),
        (
            &["--trace-config", "foo,a=b"],
            "trace-config",
            "invalid value for trace mode option: foo. Available options are \"triton\" and \
             \"opentelemetry\"",
        ),
        (&["--http-restricted-api", "foo:a=b"], "http-restricted-api", "unknown restricted api 'foo' "),
        (
            &["--http-restricted-api", "health:a=b", "--http-restricted-api", "health:c=d"],
            "http-restricted-api",
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (&["--log-format", "zz"], "log-format", "invalid argument for --log-format"),
        (&["--color", "zz"], "color", "invalid argument for --color"),
        (&["--model-config-name", ""], "model-config-name", "Error: empty argument for --model-config-name"),
        (
            &["--cuda-memory-pool-byte-size", "5"],
            "cuda-memory-pool-byte-size",
            "Cannot parse pair option due to incorrect number of inputs.--<pair option> argument \
             requires format <first>:<second>. Found: 5",
        ),
    ] {
        check_framed(line, option, text);
    }
    check_plain(
        &["--load-model", "x"],
        "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
    );
    check_plain(
        &["--host-policy", "p,zz=1"],
        "Failed to build the server's options:\nerror: setting host policy: Unsupported - Unsupported host \
             policy setting 'zz' is specified, supported settings are 'numa-node', 'cpu-cores'",
    );
}

#[test]
fn every_rule_of_numbers_and_words_has_its_text() {
    let threads = "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.";
    for (option, value, text) in [
        ("http-port", "x", "Invalid option value. Got x"),
        ("http-port", "70000", "Provided option value is out of bound. Got 70000"),
        ("http-thread-count", "-1", "Provided option value is out of bound. Got -1"),
        ("vertex-ai-thread-count", "-1", "Provided option value is out of bound. Got -1"),
        ("sagemaker-thread-count", "-1", "Provided option value is out of bound. Got -1"),
        ("metrics-interval-ms", "-1", "Provided option value is out of bound. Got -1"),
        ("grpc-http2-max-pings-without-data", "-1", "Provided option value is out of bound. Got -1"),
        ("grpc-max-connection-age", "-2", "Provided option value is out of bound. Got -2"),
        ("pinned-memory-pool-byte-size", "-1", "Provided option value is out of bound. Got -1"),
        ("cuda-memory-pool-byte-size", "0:-1", "Provided option value is out of bound. Got -1"),
        ("model-load-thread-count", "0", "Provided option value is out of bound. Got 0"),
        ("model-load-thread-count", "-1", "Provided option value is out of bound. Got -1"),
        ("max-connections", "0", "Provided option value is out of bound. Got 0"),
        ("client-header-timeout-secs", "-1", "Provided option value is out of bound. Got -1"),
        ("client-header-timeout-secs", "soon", "Invalid option value. Got soon"),
        ("log-verbose", "on", "Invalid option value. Got on"),
        ("http-max-input-size", "0", "Error: --http-max-input-size must be greater than 0."),
        ("http-max-input-size", "-1", "Error: --http-max-input-size must be greater than 0."),
        ("grpc-infer-thread-count", "1", threads),
        ("grpc-infer-thread-count", "129", threads),
        ("grpc-max-response-pool-size", "0", "Error: --grpc-max-response-pool-size must be greater than 0."),
        ("grpc-restricted-protocol", "x:k=v", "unknown restricted protocol 'x' "),
        ("grpc-restricted-protocol", "status:k=v", "unknown restricted protocol 'status' "),
        ("metrics-config", "summary_latencies=maybe", "invalid value for bool option: maybe"),
        ("access-log-rate", "1.5", "Provided option value is out of bound. Got 1.5"),
        ("rate-limit", "on", "invalid argument for --rate-limit"),
        ("cache-directory", "", "cache directory can not be empty"),
        ("response-cache-byte-size", "x", "Invalid option value. Got x"),
        ("rate-limit-resource", "R:x", "Invalid option value. Got x"),
        ("rate-limit-resource", "R:-1", "Provided option value is out of bound. Got -1"),
        ("host-policy", "p,numa-node=x", "Invalid option value. Got x"),
        (
            "host-policy",
            "p,cpu-cores=0-3,x",
            "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got 0-3,x",
        ),
        ("trace-level", "loud", "invalid value for trace level option: loud"),
    ] {
        check_framed(&[&format!("--{option}={value}")], option, text);
    }
}

#[test]
fn of_several_faults_the_first_on_the_line_is_told() {
    check_framed(&["--log-verbose=x", "--http-port=y"], "log-verbose", "Invalid option value. Got x");
    check_framed(&["--http-port=y", "--log-verbose=x"], "http-port", "Invalid option value. Got y");
}

#[test]
fn a_refused_value_is_reported_with_the_allowed_values() {
    for (option, value, advice) in [
        ("model-control-mode", "foo", "one of: none, poll, explicit"),
        ("log-format", "iso8601", "one of: default, ISO8601, json"),
        ("rate-limit", "on", "one of: off, execution_count"),
        ("grpc-infer-response-compression-level", "zz", "one of: none, low, medium, high"),
        ("log-info", "maybe", "true or false (or on, off, 1, 0)"),
        ("http-port", "x", "an integer from 0 to 65535"),
        ("model-load-thread-count", "0", "an integer from 1 to 2147483647"),
        ("min-supported-compute-capability", "x", "a number"),
    ] {
        let refusal = refusal(&[&format!("--{option}={value}")]);
        let lines: Vec<_> = refusal.lines().collect();
        let [frame, _, takes, "", usage, ..] = lines[..] else { panic!("{refusal}") };
        assert_eq!(frame, format!("error: Bad option: \"--{option}\"."));
        assert_eq!(takes, format!("'--{option}' takes {advice}"));
        assert!(usage.starts_with("Usage: nereid "), "{refusal}");
    }
    assert!(!refusal(&["--backend-config=x"]).contains("takes"));
    let is_number = |option: &&table::OptionSpec| {
        matches!(option.placeholder(), Some("integer" | "float" | "seconds" | "boolean"))
    };
    for option in table::all().filter(is_number) {
        assert!(option.advice().is_some(), "--{}", option.name);
    }
}

#[test]
fn every_form_of_a_compound_value_has_its_text() {
    let pair =
        "Cannot parse pair option due to incorrect number of inputs.--<pair option> argument requires format";
    let restriction = "option format is '<config name>:<setting>=<value>'. Got ";
    let no_backend = "No backend specified. --backend-config option format is <backend name>,<setting>=<value> \
                      or <setting>=<value>. Got ";
    let backend = "--backend-config option format is '<backend name>,<setting>=<value>'. Got ";
    let no_cache = "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got ";
    let cache = "--cache-config option format is '<cache name>,<setting>=<value>'. Got ";
    let no_mode = "No trace mode specified. --trace-config option format is <trace mode>,<setting>=<value> \
                   or <setting>=<value>. Got ";
    let trace = "--trace-config option format is '<trace mode>,<setting>=<value>'. Got ";
    for (option, value, text) in [
        ("http-restricted-api", "health", &*format!("--http-restricted-api {restriction}")),
        ("http-restricted-api", "health:k=", &format!("--http-restricted-api {restriction}")),
        ("grpc-restricted-protocol", "x", &format!("--grpc-restricted-protocol {restriction}")),
        ("sagemaker-safe-port-range", "5", &format!("{pair} <first>-<second>. Found: ")),
        ("cuda-virtual-address-size", "5", &format!("{pair} <first>:<second>. Found: ")),
        ("model-load-gpu-limit", "5", &format!("{pair} <first>:<second>. Found: ")),
        ("metrics-config", "a", "--metrics-config option format is <setting>=<value>. Got "),
        ("backend-config", ",k=v", no_backend),
        ("backend-config", "b,k", backend),
        ("backend-config", "b,=v", backend),
        ("cache-config", "k=v", no_cache),
        ("cache-config", ",k=v", no_cache),
        ("cache-config", "local,size", cache),
        ("cache-config", "local,=5", cache),
        ("cache-config", "local,size=", cache),
        ("trace-config", ",k=v", no_mode),
        ("trace-config", "triton,file", trace),
        ("host-policy", "p", "--host-policy option format is '<policy name>,<setting>=<value>'. Got "),
    ] {
        check_framed(&[&format!("--{option}={value}")], option, &format!("{text}{value}"));
    }
}

#[test]
fn bad_values_of_trace_settings_name_the_setting() {
    check_framed(
        &["--trace-config", "level=loud"],
        "trace-config level",
        "invalid value for trace level option: loud",
    );
    check_framed(&["--trace-config", "rate=x"], "trace-config rate", "Invalid option value. Got x");
    for (setting, shown) in [
        ("rate=-1", "rate"),
        ("count=-2", "count"),
        ("triton,log-frequency=-1", "triton,log-frequency"),
        ("max-buffered-bytes=5", "max-buffered-bytes"),
    ] {
        let value = setting.rsplit('=').next().unwrap();
        let text = format!("Provided option value is out of bound. Got {value}");
        check_framed(&["--trace-config", setting], &format!("trace-config {shown}"), &text);
    }
    let collector = |setting| ["--trace-config", "mode=opentelemetry", "--trace-config", setting];
    check_framed(
        &collector("opentelemetry,bsp_max_queue_size=0"),
        "trace-config opentelemetry,bsp_max_queue_size",
        "Provided option value is out of bound. Got 0",
    );
    check_framed(
        &collector("opentelemetry,protocol=grpc"),
        "trace-config opentelemetry,protocol",
        "invalid value for protocol: grpc. Available options are \"http/json\" and \"http/protobuf\"",
    );
    check_framed(
        &["--trace-config", "triton,log-frequency=x"],
        "trace-config triton,log-frequency",
        "Invalid option value. Got x",
    );
}

#[test]
fn faults_between_options_have_no_frame() {
    check_plain(&["x"], "Unexpected argument: x");
    check_plain(
        &["--response-cache-byte-size=5", "--cache-config=local,size=5"],
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. \
             Please provide one or the other.",
    );
    check_plain(
        &["--cache-config=local,size=5", "--cache-config=redis,host=h"],
        "found multiple cache configurations, but only a single cache is currently supported",
    );
    let build =
        "Failed to build the server's options:\nerror: setting model load GPU limit: Invalid argument - ";
    check_plain(&["--model-load-gpu-limit=-1:0.5"], &format!("{build}expects device ID >= 0, got -1"));
    check_plain(
        &["--model-load-gpu-limit=0:-0.4"],
        &format!("{build}expects limit fraction to be in range [0.0, 1.0], got -0.4"),
    );
    check_plain(
        &["--grpc-use-ssl=true"],
        "Error: Use of '--grpc-use-ssl' requires setting '--grpc-server-cert' as well.",
    );
    check_plain(
        &["--http-use-ssl=true", "--http-server-cert=c"],
        "Error: Use of '--http-use-ssl' requires setting '--http-server-key' as well.",
    );
    check_plain(
        &["--metrics-use-ssl=true"],
        "Error: Use of '--metrics-use-ssl' requires setting '--metrics-server-cert' as well.",
    );
    check_plain(
        &["--grpc-use-ssl-mutual=true", "--grpc-server-cert=c", "--grpc-server-key=k"],
        "Error: Use of '--grpc-use-ssl-mutual' requires setting '--grpc-root-cert' as well.",
    );
}

#[test]
fn endpoints_may_not_share_an_address_and_port() {
    let clash = |names: &str, at: &str| {
        format!("The server cannot listen to {names} at the same address and port {at}")
    };
    check_plain(&["--grpc-port=8000"], &clash("HTTP requests and GRPC requests", "0.0.0.0:8000"));
    check_plain(
        &["--http-address=[::1]", "--grpc-address=ipv6:[::1]", "--grpc-port=8000", "--allow-metrics=false"],
        &clash("HTTP requests and GRPC requests", "[::1]:8000"),
    );
    check_plain(&["--metrics-port=8001"], &clash("GRPC requests and metrics requests", "0.0.0.0:8001"));
    check_plain(
        &["--allow-sagemaker=true", "--metrics-port=8080"],
        &clash("metrics requests and SageMaker requests", "0.0.0.0:8080"),
    );
    check_plain(
        &["--allow-sagemaker=true", "--sagemaker-safe-port-range=9000-9010"],
        "The server cannot listen to HTTP requests at port 8000, allowed port range is [9000, 9010]",
    );
    check_plain(
        &["--http-address=unix:/a", "--grpc-address=unix:///a", "--metrics-address=::1"],
        "The server cannot listen to HTTP requests and GRPC requests at the same unix socket /a",
    );
    check_plain(
        &["--http-address=unix:/a"],
        "Error: A unix socket as '--http-address' requires setting '--metrics-address' or '--allow-metrics=false' as \
         well.",
    );
    options(&["--http-address=unix:/a", "--allow-metrics=false"]);
    options(&["--grpc-port=8000", "--grpc-address=127.0.0.1"]);
    options(&["--grpc-port=8000", "--allow-grpc=false"]);
    options(&["--grpc-port=0", "--http-port=0", "--metrics-port=0"]);
}

#[test]
fn values_that_leave_a_feature_off_are_accepted() {
    options(&[
        "--model-control-mode=None",
        "--model-namespacing=false",
        "--allow-sagemaker=0",
        "--allow-vertex-ai=0",
    ]);
    options(&[
        "--repository-poll-secs=3",
        "--sagemaker-port=1",
        "--vertex-ai-default-model=m",
        "--enable-peer-access=false",
    ]);
}

#[test]
fn a_broken_value_is_reported_whatever_stands_before_it() {
    check_framed(&["--allow-sagemaker=true", "--http-port=x"], "http-port", "Invalid option value. Got x");
}

#[test]
fn the_first_fault_of_the_line_is_reported() {
    check_framed(&["--http-port=x", "--log-info=maybe"], "http-port", "Invalid option value. Got x");
    check_framed(&["--http-port=x", "--help"], "http-port", "Invalid option value. Got x");
}

#[test]
fn a_broken_environment_variable_is_named() {
    let environment =
        ProcessEnvironment { delay_scheduler: Some("many".into()), ..ProcessEnvironment::default() };
    let refusal = parse_in(&environment, &[]).unwrap_err();
    assert!(refusal.starts_with(
        "error: environment variable TRITONSERVER_DELAY_SCHEDULER: Invalid option value. Got many\n"
    ));
}

#[test]
fn a_refusal_ends_with_how_to_get_help() {
    let refusal = refusal(&["--nonsense"]);
    assert!(refusal.lines().last().unwrap().contains("nereid --help"), "{refusal}");
    assert_eq!(refusal.matches("Usage: ").count(), 1, "{refusal}");
}

#[test]
fn a_misspelt_command_is_named() {
    for (word, command) in [("chekc", "check"), ("perv", "perf"), ("apikey", "api-key")] {
        let refusal = refusal(&[word, "x"]);
        let expected =
            format!("error: Unexpected argument: {word}\nDid you mean the command '{command}'?\n\nUsage: ");
        assert!(refusal.starts_with(&expected), "{refusal}");
    }
    assert!(!refusal(&["/models"]).contains("Did you mean"));
}

#[test]
fn an_argument_is_a_repository_a_url_or_an_onnx_file() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).display().to_string();
    let [models, net, notes] = ["models", "net.onnx", "notes.txt"].map(path);
    std::fs::create_dir(&models).unwrap();
    for file in [&net, &notes] {
        std::fs::write(file, "").unwrap();
    }
    let taken = options(&["--http-port=1", &models, "s3://bucket/models", &net]).repository;
    assert!(taken.paths.iter().eq([models.as_str(), "s3://bucket/models"]), "{:?}", taken.paths);
    assert!(taken.model_files.iter().eq([std::path::Path::new(&net)]));
    for (wrong, advice) in [
        (&notes, "Name the directory of a model repository, or an ONNX file"),
        (&path("none"), "There is no such file or directory, and no such command"),
        (&"check".to_owned(), "The command 'check' is the first word of its line"),
    ] {
        let refusal = refusal(&["--http-port=1", wrong]);
        assert!(refusal.starts_with(&format!("error: Unexpected argument: {wrong}\n{advice}")), "{refusal}");
    }
}

#[test]
fn no_color_counts_unless_an_option_says_otherwise() {
    let environment = ProcessEnvironment { no_color: true, ..ProcessEnvironment::default() };
    assert_eq!(options(&[]).color, ColorChoice::Auto);
    assert_eq!(super::options_in(&environment, &[]).color, ColorChoice::Never);
    assert_eq!(super::options_in(&environment, &["--color=always"]).color, ColorChoice::Always);
}

#[test]
fn a_single_model_is_one_place_of_this_machine() {
    for name in ["", ".", "..", ".a", "a/b"] {
        check_framed(
            &[&format!("--single-model={name}")],
            "single-model",
            "Error: --single-model needs the name of a model",
        );
    }
    let line = |repositories: &[&'static str]| {
        let repositories = repositories.iter().map(|path| format!("--model-repository={path}"));
        repositories.chain(["--single-model=m".to_owned()]).collect::<Vec<_>>()
    };
    for repositories in [&[][..], &["/a", "/b"], &["s3://bucket/models"]] {
        let line = line(repositories);
        check_plain(
            &line.iter().map(String::as_str).collect::<Vec<_>>(),
            "Error: Use of '--single-model' requires one '--model-repository', which is a directory or an ONNX file of this \
             machine.",
        );
    }
    let line = line(&["/a"]);
    let repository = options(&line.iter().map(String::as_str).collect::<Vec<_>>()).repository;
    assert_eq!(repository.single_model.as_deref(), Some("m"));
}

/// As each option that may be given several times: the arguments are all that counts then.
#[test]
fn arguments_take_precedence_over_the_repositories_of_the_environment() {
    let mut environment = ProcessEnvironment::default();
    environment.options.insert("model-repository".into(), "/elsewhere".into());
    assert!(super::options_in(&environment, &["gs://models"]).repository.paths.iter().eq(["gs://models"]));
    assert!(super::options_in(&environment, &[]).repository.paths.iter().eq(["/elsewhere"]));
}

#[test]
fn rules_for_client_certificates_need_a_port_that_asks_for_them() {
    for line in [
        &["--client-crl-file=a"][..],
        &["--allow-v1-client-certs=true"],
        &["--client-crl-file=a", "--http-use-ssl-mutual=true", "--allow-http=false"],
    ] {
        let name = line[0].split('=').next().unwrap();
        let text = format!(
            "Error: '{name}' needs '--grpc-use-ssl-mutual', '--http-use-ssl-mutual' or '--metrics-use-ssl-mutual'."
        );
        check_plain(line, &text);
    }
}
