//! Variables of the environment that nothing reads: the server warns about them when it starts, and so do the commands
//! that read a repository as the server would.

use std::{fs, process::Output};

const EXPECTED: &str = "Warning: no option has the environment variable NEREID_HTPP_PORT, it has no effect, did you mean \
                        NEREID_HTTP_PORT?\n";

/// What a server says that gets these variables, and ends because it has no repository.
fn complaints(variables: &[(&str, &str)]) -> String {
    let missing = tempfile::tempdir().unwrap().path().join("missing");
    let Output { status, stderr, .. } = testing::command(env!("CARGO_BIN_EXE_nereid"))
        .arg(format!("--model-repository={}", missing.display()))
        .args(["--http-port=0", "--grpc-port=0", "--metrics-port=0"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(1) && stderr.contains("failed to stat file"), "{stderr}");
    stderr
}

#[test]
fn a_misspelt_variable_is_reported_and_does_not_stop_the_server() {
    let complaints = complaints(&[
        ("NEREID_HTPP_PORT", "9000"),
        ("NEREID_SERVICE_HOST", "10.0.0.1"),
        ("NEREID_PORT_8000_TCP_ADDR", "10.0.0.1"),
    ]);
    assert!(complaints.contains(EXPECTED), "{complaints}");
    assert_eq!(complaints.matches("Warning: ").count(), 1, "{complaints}");
}

#[test]
fn commands_that_read_models_report_it_too_and_go_on() {
    let repository = tempfile::tempdir().unwrap();
    let model = repository.path().join("m");
    fs::create_dir_all(model.join("1")).unwrap();
    fs::write(model.join("config.pbtxt"), "platform: 'ensemble'").unwrap();
    for (words, place) in
        [(&["check"][..], repository.path()), (&["config", "show"], &model), (&["init", "--print"], &model)]
    {
        let command = |set: bool| {
            let mut command = testing::command(env!("CARGO_BIN_EXE_nereid"));
            command.args(words).arg(place).envs(set.then_some(("NEREID_HTPP_PORT", "9000")));
            command.output().unwrap()
        };
        let (with, without) = (command(true), command(false));
        assert!(String::from_utf8_lossy(&with.stderr).starts_with(EXPECTED), "{words:?}: {with:?}");
        assert_eq!((with.status, with.stdout), (without.status, without.stdout), "{words:?}");
    }
}
