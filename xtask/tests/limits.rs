//! What the settings of `.config/nextest.toml` do with a Rust test that waits for ever, one that leaves a process, and one
//! that fails: each is named, and the run ends.
//!
//! The tests are in a package of their own, made here. Its profile `brief` has the limits within seconds.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const TESTS: &str = r#"
#[test]
fn waits_for_ever() {
    println!("waiting for something that does not come");
    loop {
        std::thread::park();
    }
}

#[test]
fn leaves_a_process() {
    let mut left = std::process::Command::new("sleep");
    left.arg("600").spawn().unwrap();
}

#[test]
fn fails() {
    println!("what it saw");
    panic!("the reason");
}

#[test]
fn passes() {}
"#;

const MANIFEST: &str =
    "[package]\nname = \"limited\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";

/// The output of nextest over the tests, and its report.
fn run(folder: &Path) -> (String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), MANIFEST).unwrap();
    fs::write(folder.join("src/lib.rs"), TESTS).unwrap();
    let mut nextest = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    nextest.args(["nextest", "run", "--offline", "--profile", "brief", "--config-file"]);
    nextest.arg(root.join(".config/nextest.toml")).current_dir(folder).stdin(Stdio::null());
    // This test is itself run by nextest, whose variables would be settings of the inner one.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NEXTEST") {
            nextest.env_remove(name);
        }
    }
    // The inner run leaves a process that holds its output, if it fails to do its work. A file is read to its end anyway.
    let output = fs::File::create(folder.join("output")).unwrap();
    nextest.env("CARGO_TARGET_DIR", folder.join("target")).env_remove("RUST_BACKTRACE");
    nextest.stdout(output.try_clone().unwrap()).stderr(output);
    let status = nextest.status().unwrap();
    let text = fs::read_to_string(folder.join("output")).unwrap();
    assert_eq!(status.code(), Some(100), "{text}");
    let report = fs::read_to_string(folder.join("target/nextest/brief/tests.xml")).unwrap();
    (text, report)
}

#[test]
fn a_test_that_waits_leaks_or_fails_ends_the_run_with_its_name_and_output() {
    let folder = tempfile::tempdir().unwrap();
    let (text, report) = run(folder.path());
    let line = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(&["TIMEOUT", "waits_for_ever"]), "{text}");
    assert!(text.contains("waiting for something that does not come"), "{text}");
    assert!(line(&["LEAK-FAIL", "leaves_a_process"]), "{text}");
    assert!(
        line(&["FAIL", "fails"]) && text.contains("what it saw") && text.contains("the reason"),
        "{text}"
    );
    assert!(line(&["PASS", "passes"]), "{text}");
    assert!(report.contains("waits_for_ever") && report.contains("<failure"), "{report}");
    end_what_was_left();
}

/// Nextest tells which test has left a process, and lets the process run. `cargo xtask test` ends it.
fn end_what_was_left() {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mine = String::from_utf8_lossy(&environment).contains("NEXTEST_TEST_NAME=leaves_a_process");
        if mine {
            let pid = entry.file_name();
            Command::new("kill").arg("-KILL").arg(pid).status().unwrap();
        }
    }
}
