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
        ("config = 'other'", "unrecognized option 'config'"),
        (
            "http-port = 1979-05-27",
            "http-port: a value is a string, a number, true, false, or a list of these",
        ),
        ("http-port 1", "cannot read '"),
    ] {
        let (_folder, config) = file(text);
        let error = parse_in(&ProcessEnvironment::default(), &[&config]).unwrap_err();
        assert!(error.contains(expected) && error.contains("nereid.toml"), "{error}");
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
