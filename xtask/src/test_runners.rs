//! The runners of tests: nextest for those in Rust, pytest for those in Python. Steps keep what they report.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::Build;
use crate::{process, python, steps, tools, workspace};

/// How everything is built.
pub(crate) const BUILD: Build = Build::DevWorkspace;
/// Client tests wait most of their time.
const CLIENT_TESTS_AT_ONCE: &str = "4";

/// Runs Rust tests and keeps their report for the summary.
pub(crate) fn nextest(step: &str, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Result<()> {
    let mut command = tools::NEXTEST.command(&["run", "--locked", "--no-fail-fast"])?;
    command.args(arguments).envs(variables.iter().map(|(variable, path)| (variable, path)));
    let ended = process::run(&mut command);
    // Nextest names the file of its configuration: .config/nextest.toml.
    let report = workspace::target().join("nextest/default/tests.xml");
    if report.is_file() {
        fs::rename(&report, steps::file(step, "xml")).context("the report of the tests cannot be kept")?;
    }
    ended
}

/// pytest with a report for the summary.
pub(crate) fn pytest(step: &str) -> Command {
    let mut pytest = python::command();
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "-rsfE"]);
    pytest.arg("--junitxml").arg(steps::file(step, "xml"));
    pytest
}

/// The client tests that an expression over their markers selects.
pub(crate) fn client_tests(step: &str, markers: &str, variables: &[(&str, PathBuf)]) -> Result<()> {
    // The library is built with the server; some tests embed it.
    let server = BUILD.server()?;
    python::install("tests/requirements.txt")?;
    let mut pytest = pytest(step);
    pytest
        .args(["-m", markers])
        // The tests of a file share servers.
        .args(["--numprocesses", CLIENT_TESTS_AT_ONCE, "--dist", "loadfile", "tests/clients"])
        .env("NEREID_BINARY", server)
        .envs(tools::fetch(tools::OF_TESTS)?)
        .envs(variables.iter().map(|(variable, path)| (variable, path)));
    process::run(&mut pytest)
}
