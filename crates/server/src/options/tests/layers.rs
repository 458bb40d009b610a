//! Options from the environment and from a file.
use std::collections::BTreeMap;

use super::*;

fn environment(options: &[(&str, &str)]) -> ProcessEnvironment {
    let options: BTreeMap<_, _> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ProcessEnvironment { options, ..ProcessEnvironment::default() }
}

/// A file with this text. It is there as long as the first value.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nereid.toml");
    std::fs::write(&path, text).unwrap();
    (folder, format!("--config={}", path.display()))
}

fn http_port(options: &ResolvedOptions) -> u16 {
    options.http.as_ref().unwrap().listen.port
}

fn paths(options: &ResolvedOptions) -> Vec<&str> {
    options.repository.paths.iter().map(String::as_str).collect()
}

#[test]
fn the_line_precedes_the_environment_and_the_environment_the_file() {
    let (_folder, config) =
        file("model-repository = '/file'\nhttp-port = 1\ngrpc_port = 2\n[metrics]\nport = 3\n");
    let environment = environment(&[("http-port", "10"), ("grpc-port", "20")]);
    let options = options_in(&environment, &["--grpc-port=200", &config]);
    assert_eq!(paths(&options), ["/file"]);
    assert_eq!(http_port(&options), 10);
    assert_eq!(options.grpc.unwrap().listen.port, 200);
    assert_eq!(options.metrics.unwrap().listen.port, 3);
}

#[test]
fn options_that_may_be_given_several_times_are_lists_and_lines() {
    let (_folder, config) = file("model-repository = ['/a', '/b']\n");
    assert_eq!(paths(&options(&[&config])), ["/a", "/b"]);
    let environment = environment(&[("model-repository", "/c\n/d")]);
    assert_eq!(paths(&options_in(&environment, &[])), ["/c", "/d"]);
    // They are not mixed.
    assert_eq!(paths(&options_in(&environment, &[&config, "--model-repository=/e"])), ["/e"]);
}

#[test]
fn flags_and_booleans_are_true_or_false() {
    let (_folder, config) = file(
        "model-repository = '/m'\nstrict-readiness = false\n[disable-auto]\ncomplete-config = true\n[http]\nport = '7000'\n",
    );
    let on = options(&[&config]);
    assert!(
        !on.repository.auto_complete
            && on.server.readiness == engine::ReadinessRule::NoModel
            && http_port(&on) == 7000
    );
    let environment = environment(&[("disable-auto-complete-config", "false")]);
    assert!(options_in(&environment, &[&config]).repository.auto_complete);
}

#[test]
fn errors_name_the_place() {
    for (text, expected) in [
        ("http-port = 'many'", "http-port: "),
        ("http-prot = 1", "unrecognized option 'http-prot'"),
        ("[http]\nprot = 1", "unrecognized option 'http-prot'"),
        ("config = 'other'", "nereid.toml:1: 'config' cannot stand in a file of options\n"),
        (
            "http-port = 1979-05-27",
            "http-port: a value is a string, a number, true, false, or a list of these",
        ),
        ("http-port 1", "cannot read '"),
    ] {
        let (_folder, config) = file(text);
        let error = parse_in(&ProcessEnvironment::default(), &[&config]).unwrap_err();
        assert!(error.contains(expected) && error.contains("nereid.toml"), "{error}");
        let (told, _) = error.split_once("\n\nUsage: ").unwrap();
        assert!(!told.contains("\n\n"), "{error}");
    }
    let misspelt = file("http-prot = 1");
    let error = parse_in(&ProcessEnvironment::default(), &[&misspelt.1]).unwrap_err();
    assert!(error.contains("Did you mean '--http-port'?"), "{error}");
    let error = parse_in(&environment(&[("http-port", "x")]), &["--model-repository=/m"]).unwrap_err();
    assert!(error.contains("environment variable NEREID_HTTP_PORT: "), "{error}");
    let error = parse_in(&ProcessEnvironment::default(), &["--config=/nowhere.toml"]).unwrap_err();
    assert!(error.contains("cannot read '/nowhere.toml'"), "{error}");
}

#[test]
fn the_variables_of_a_service_of_kubernetes_are_not_read() {
    let environment = environment(&[("http-port", "tcp://10.0.0.1:8000")]);
    let options = options_in(&environment, &["--model-repository=/m"]);
    assert_eq!(http_port(&options), 8000);
    assert!(options.warnings.iter().any(|warning| warning.contains("NEREID_HTTP_PORT")));
}

#[test]
fn the_environment_may_name_the_file_and_help_needs_none() {
    let (_folder, config) = file("model-repository = '/m'\nhttp-port = 5\n");
    let path = config.strip_prefix("--config=").unwrap();
    assert_eq!(http_port(&options_in(&environment(&[("config", path)]), &[])), 5);
    let broken = environment(&[("config", "/nowhere.toml")]);
    assert!(matches!(parse_in(&broken, &["--help"]), Ok(Invocation::Print(_))));
}

#[test]
fn a_variable_that_nothing_reads_is_a_warning() {
    let environment = ProcessEnvironment {
        unread: ["NEREID_HTPP_PORT".to_owned()].into(),
        ..ProcessEnvironment::default()
    };
    let options = options_in(&environment, &["--model-repository=/m"]);
    assert_eq!(
        options.warnings,
        ["Warning: no option has the environment variable NEREID_HTPP_PORT, it has no effect, did you mean \
             NEREID_HTTP_PORT?"]
    );
}

#[test]
fn errors_of_a_file_have_a_line_and_come_first() {
    for (text, expected) in [
        (
            "# ports\nhttp-port = 'many'",
            "2: http-port: Invalid option value. Got many\n'--http-port' takes an integer",
        ),
        (
            "[http]\n\nport = 70000",
            "3: http-port: Provided option value is out of bound. Got 70000\n'--http-port' takes",
        ),
        ("[http]\nprot = 1", "2: unrecognized option 'http-prot'\nDid you mean '--http-port'?\n\nUsage: "),
        ("config = 'x'", "1: 'config' cannot stand in a file of options\n\nUsage: "),
        ("id = 'x'\nhelp = true", "2: 'help' cannot stand in a file of options\n\nUsage: "),
        (
            "log-verbose = 1.5",
            "1: log-verbose: Invalid option value. Got 1.5\n'--log-verbose' takes an integer from ",
        ),
        ("http-port = '80x'", "1: http-port: Invalid option value. Got 80x\n"),
        ("client-idle-timeout-secs = '5s'", "1: client-idle-timeout-secs: Invalid option value. Got 5s\n"),
        (
            "grpc-address = [\n'a',\n'b']",
            "3: grpc-address: the option takes one value, not several\n\nUsage: ",
        ),
        ("http-port = 1\nhttp_port = 2", "2: the option 'http-port' stands in line 1, too\n\nUsage: "),
        ("http_port = 1\n[http]\nport = 1", "3: the option 'http-port' stands in line 1, too\n\nUsage: "),
        ("model-repository = ['/m', {}]", "1: model-repository: a value is a string, "),
    ] {
        let (_folder, config) = file(text);
        let error = parse_in(&ProcessEnvironment::default(), &[&config]).unwrap_err();
        let path = config.strip_prefix("--config=").unwrap();
        assert!(error.starts_with(&format!("error: {path}:{expected}")), "{text}: {error}");
    }
}

#[test]
fn numbers_of_a_file_may_have_any_form_of_toml() {
    let (_folder, config) =
        file("http-port = 0x1F90\ngrpc-port = 8_001\nclient-idle-timeout-secs = 1.5\nlog-verbose = true\n");
    let options = options(&["--model-repository=/m", &config]);
    assert_eq!((http_port(&options), options.grpc.unwrap().listen.port), (8080, 8001));
    assert_eq!(options.client_limits.idle_timeout, Some(std::time::Duration::from_millis(1500)));
}

#[test]
fn a_variable_has_one_value_and_a_whole_number() {
    for (name, value, expected) in [
        (
            "log-verbose",
            "1.5",
            "Invalid option value. Got 1.5\n'--log-verbose' takes an integer from -2147483648 ",
        ),
        (
            "client-write-timeout-secs",
            "-1",
            "Provided option value is out of bound. Got -1\n'--client-write-timeout-secs' takes a number of seconds from 0 ",
        ),
        (
            "access-log-rate",
            "2",
            "Provided option value is out of bound. Got 2\n'--access-log-rate' takes a number from 0 to 1\n",
        ),
        ("grpc-address", "a\nb", "the option takes one value, not several\n"),
    ] {
        let error = parse_in(&environment(&[(name, value)]), &["--model-repository=/m"]).unwrap_err();
        let variable = format!("NEREID_{}", name.replace('-', "_").to_uppercase());
        assert!(error.starts_with(&format!("error: environment variable {variable}: {expected}")), "{error}");
    }
}
