//! What a new user sees: the help, the log, and the messages about mistakes.

use std::{fs, path::Path, process::Output};

use rustix::process::Signal;
use tempfile::TempDir;
use testing::{Program, TestProcess, command, eventually, http::Connection};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

/// A repository with these files.
fn repository(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

/// Runs the program until it ends by itself.
fn run(arguments: &[&str]) -> Output {
    command(PROGRAM).args(arguments).env_remove("AIP_STORAGE_URI").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Starts a server, and waits until it is ready or has finished its startup.
fn started(repository: &Path, arguments: &[&str]) -> Program {
    let program = Program::start(Path::new(PROGRAM), repository, arguments).unwrap();
    program.address_of("Metrics Service");
    program
}

fn status(program: &Program, path: &str) -> u16 {
    let mut connection = Connection::open(program.address_of("HTTPService")).unwrap();
    connection.ask("GET", path, &[], b"").unwrap().status
}

#[test]
fn short_options_print_the_help_and_the_version() {
    let help = run(&["-h"]);
    assert!(help.status.success() && text(&help.stdout).contains("\n  perf  "));
    let version = run(&["-V"]);
    assert!(version.status.success() && text(&version.stdout).starts_with("nereid "));
    let refused = run(&["--model-repositry=/models"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("Did you mean '--model-repository'?"), "{refused:?}");
}

#[test]
fn alone_the_program_prints_one_screen_and_what_it_needs() {
    let screen = text(&run(&["help"]).stdout);
    let alone = run(&[]);
    assert_eq!((alone.status.code(), text(&alone.stdout).as_str()), (Some(1), ""));
    assert_eq!(text(&alone.stderr), format!("{screen}\nerror: name a model repository or an ONNX file\n"));
    let without = run(&["--http-port=0", "--grpc-port=0", "--metrics-port=0"]);
    let expected = "error: creating server: Invalid argument - --model-repository must be specified: name a repository or an \
                    ONNX file, as in 'nereid models/'\n";
    assert!(text(&without.stderr).ends_with(expected), "{without:?}");
}

#[test]
fn a_repository_may_be_an_argument_with_and_without_serve() {
    let root = repository(&[]);
    let place = root.path().display().to_string();
    for words in [&[place.as_str()][..], &["serve", &place]] {
        let mut command = command(PROGRAM);
        command.args(words).args(["--http-port=0", "--grpc-port=0", "--metrics-port=0"]);
        let program = Program::start_line(command).unwrap();
        program.wait_for("ready in ");
    }
}

#[test]
fn the_root_leads_a_browser_to_the_status_page() {
    let repository = repository(&[]);
    let root = |arguments: &[&str], accept| {
        let program = started(repository.path(), arguments);
        let mut connection = Connection::open(program.address_of("HTTPService")).unwrap();
        let answer = connection.ask("GET", "/", &[("accept", accept)], b"").unwrap();
        (answer.status, answer.header("location").map(str::to_owned))
    };
    assert_eq!(root(&[], "text/html,*/*;q=0.8"), (303, Some("status".to_owned())));
    assert_eq!(root(&[], "*/*"), (404, None));
    assert_eq!(root(&["--allow-status-page=false"], "text/html"), (404, None));
}

#[test]
fn a_refused_start_has_colours_where_they_are_wanted() {
    let root = repository(&[("m/config.pbtxt", "max_batch_size: -1")]);
    let refused = run(&[
        &root.path().display().to_string(),
        "--color=always",
        "--http-port=0",
        "--grpc-port=0",
        "--metrics-port=0",
    ]);
    let complaints = text(&refused.stderr);
    assert!(complaints.contains("\x1b[1;31merror:\x1b[0m creating server: "), "{complaints}");
    assert!(complaints.contains("\x1b[1;31mE"), "{complaints}");
}

#[test]
fn the_log_says_who_starts_and_when_it_is_ready_and_shows_tables_as_they_are() {
    let repository = repository(&[]);
    let program = started(repository.path(), &[]);
    program.wait_for("metrics: http://localhost:");
    let log = program.log();
    let http = program.address_of("HTTPService");
    for link in
        ["status page: http://localhost:{}/status", "description of the API: http://localhost:{}/docs"]
    {
        let link = link.replace("{}", &http.port().to_string());
        assert!(log.split_once("ready in ").unwrap().1.contains(&link), "{link}: {log}");
    }
    let version =
        concat!("\"nereid ", env!("CARGO_PKG_VERSION"), ", which behaves as Triton Inference Server ");
    assert!(log.contains(version), "{log}");
    assert!(log.contains("] \n+--") && !log.contains("\"\""), "{log}");
    program.wait_for_complaint("has no models (it is empty)");
}

#[test]
fn verbose_lines_that_scripts_look_for_are_there() {
    let repository = repository(&[]);
    let default = started(repository.path(), &["--log-verbose=1"]);
    assert!(default.log().contains("\"Adding default backend config setting: default-max-batch-size,4\""));
    let given = ["--log-verbose=1", "--backend-config=default-max-batch-size=7"];
    let given = started(repository.path(), &given).log();
    assert!(given.contains("\"Found overwritten default setting: default-max-batch-size,7\""), "{given}");
    assert!(!given.contains("Adding default backend config setting"), "{given}");
    assert!(!started(repository.path(), &[]).log().contains("default-max-batch-size,4"));
}

#[test]
fn every_mistake_of_a_configuration_is_reported_with_its_line_and_a_caret() {
    let repository = repository(&[
        ("m/config.pbtxt", "bakend: 'onnxruntime'\nmax_batchsize: 4\n"),
        ("m/1/model.onnx", ""),
    ]);
    let place = format!("--model-repository={}", repository.path().display());
    let refused = run(&[&place, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]);
    assert_eq!(refused.status.code(), Some(1));
    let complaints = text(&refused.stderr);
    let file = repository.path().join("m/config.pbtxt");
    let expected = format!(
        "config.pbtxt:1:1: 'bakend' is not a field of ModelConfig, did you mean 'backend'?\"\n  bakend: 'onnxruntime'\n  \
         ^\n{}:2:1: 'max_batchsize' is not a field of ModelConfig, did you mean 'max_batch_size'?\n",
        file.display()
    );
    assert!(complaints.contains(&expected), "{complaints}");
}

#[test]
fn problems_of_both_rounds_have_their_place_in_the_log() {
    let io =
        "input { name: 'i' data_type: TYPE_FP32 dims: 1 } output { name: 'o' data_type: TYPE_FP32 dims: 1 }";
    let groups = format!("backend: 'onnxruntime'\n{io}\ninstance_group {{\n  kind: KIND_GPU\n}}\n");
    let repository = repository(&[
        ("first/config.pbtxt", "backend: 'onnxruntime'\nmax_batch_size: -1\n"),
        ("first/1/model.onnx", ""),
        ("second/config.pbtxt", &groups),
        ("second/1/model.onnx", ""),
    ]);
    let program = started(repository.path(), &["--exit-on-error=false"]);
    let complaint = |model: &str, line, text: &str| {
        let file = repository.path().join(model).join("config.pbtxt");
        program.wait_for_complaint(&format!("{}:{line}: {text}", file.display()));
    };
    complaint("first", 2, "'max_batch_size' must be non-negative");
    complaint("second", 3, "instance group second_0 of model second");
    program.wait_for_complaint("not all models are loaded");
}

#[test]
fn a_directory_that_is_no_repository_is_reported_with_the_expected_layout() {
    let root = repository(&[
        ("flat/m/model.onnx", ""),
        ("flat/.git/HEAD", ""),
        ("model/config.pbtxt", ""),
        ("model/1/model.onnx", ""),
    ]);
    for (name, words) in [
        (
            "flat",
            &["(found model.onnx): expected a directory named by a number", "ignore hidden directory '"][..],
        ),
        ("model", &["looks like a model (it has config.pbtxt): name the directory above it"]),
    ] {
        let place = format!("--model-repository={}", root.path().join(name).display());
        let refused = run(&[&place, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]);
        let complaints = text(&refused.stderr);
        assert!(words.iter().all(|words| complaints.contains(words)), "{complaints}");
        assert!(complaints.contains("error: creating server: Internal - failed to load all models"));
    }
}

#[test]
fn a_setting_for_a_missing_backend_is_reported() {
    let repository = repository(&[]);
    let arguments = ["--backend-config=onnxruntim,default-max-batch-size=8"];
    let program = started(repository.path(), &arguments);
    program.wait_for_complaint("there is no backend 'onnxruntim', did you mean 'onnxruntime'?");
}

#[test]
fn without_its_repository_a_server_may_run_neither_live_nor_ready() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("missing");
    let program = started(&missing, &["--exit-on-error=false"]);
    let statuses =
        ["/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/m"].map(|path| status(&program, path));
    assert_eq!(statuses, [400, 400, 200, 503]);
    let place = format!("--model-repository={}", missing.display());
    let refused = run(&[&place, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]);
    let expected = format!("error: creating server: Internal - failed to stat file {}\n", missing.display());
    assert!(text(&refused.stderr).ends_with(&expected), "{refused:?}");
}

#[test]
fn sighup_reopens_the_log_file_and_does_not_end_the_server() {
    let repository = repository(&[]);
    let logs = tempfile::tempdir().unwrap();
    let (log, old) = (logs.path().join("log"), logs.path().join("log.1"));
    let mut command = command(PROGRAM);
    command
        .args([
            &format!("--model-repository={}", repository.path().display()),
            "--http-port=0",
            "--grpc-port=0",
        ])
        .args(["--metrics-port=0", &format!("--log-file={}", log.display())]);
    let mut program = TestProcess::start(&mut command).unwrap();
    let wait_for = |words: &str| {
        eventually(words, || fs::read_to_string(&log).is_ok_and(|text| text.contains(words)));
    };
    wait_for("ready in ");
    fs::rename(&log, &old).unwrap();
    let id = rustix::process::Pid::from_child(&program);
    rustix::process::kill_process(id, Signal::HUP).unwrap();
    wait_for("anew (SIGHUP)");
    assert!(program.try_wait().unwrap().is_none());
    rustix::process::kill_process(id, Signal::TERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert!(fs::read_to_string(&old).unwrap().contains("ready in "));
}
