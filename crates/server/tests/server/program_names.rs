//! The program under its other names.

use std::{os::unix::fs::symlink, path::PathBuf, process::Command};

use tempfile::TempDir;
use testing::{Program, command};

/// A folder with the names that the image has.
struct Names(TempDir);

impl Names {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nereid", "tritonserver", "serve", "nereid-entrypoint"] {
            symlink(env!("CARGO_BIN_EXE_nereid"), folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that finds the programs of the folder.
    fn command(&self, name: &str) -> Command {
        let mut command = command(self.path(name));
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        command.env("PATH", path).env_remove("AIP_STORAGE_URI");
        command
    }
}

/// The name that `ps` shows for a server that is started so.
fn shown_name(command: Command) -> String {
    let repository = tempfile::tempdir().unwrap();
    let program = Program::start_with(command, repository.path(), &[]).unwrap();
    program.address_of("HTTPService");
    program.name().unwrap()
}

#[test]
fn the_entry_point_runs_the_program_that_its_arguments_name() {
    let names = Names::new();
    for words in [&["tritonserver", "--version"][..], &["serve", "--version"], &["nereid", "--version"]] {
        let output = names.command("nereid-entrypoint").args(words).output().unwrap();
        assert!(output.status.success() && output.stdout.starts_with(b"nereid "), "{words:?}: {output:?}");
    }
    let output = names.command("nereid-entrypoint").arg("no-such-program").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: cannot run 'no-such-program': No such file or directory (os error 2)\n"
    );
}

#[test]
fn the_entry_point_takes_options_and_commands_of_the_server_too() {
    let names = Names::new();
    for words in [&["--version"][..], &["man"], &["completions", "bash"]] {
        let output = names.command("nereid-entrypoint").args(words).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{words:?}: {output:?}");
    }
}

#[test]
fn a_server_that_is_started_in_the_place_of_triton_has_its_name() {
    let names = Names::new();
    let mut by_entry_point = names.command("nereid-entrypoint");
    by_entry_point.arg("tritonserver");
    for command in [by_entry_point, names.command("nereid-entrypoint"), names.command("tritonserver")] {
        assert_eq!(shown_name(command), "tritonserver");
    }
    assert_eq!(shown_name(names.command("nereid")), "nereid");
}

#[test]
fn serve_without_the_models_of_the_platform_says_what_is_missing() {
    let output = Names::new().command("serve").output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("/opt/ml/model"), "{complaint}");
}
