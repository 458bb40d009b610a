//! `cargo xtask test` and `cargo xtask integrations`: the steps that a change must pass, in two tiers.
//!
//! The first tier is everything that needs no large foreign package. The second tier has a group of tests for each of
//! those packages. Each step fetches what it needs, so that it also runs alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::steps::{self, CannotRun, CheckStep, Steps};
use crate::tools::{self, Tool};
use crate::workspace::{self, Build, cargo};
use crate::{
    changes, chaos, debian, deepcheck, demo, dependencies, dist, docs, gates, memcheck, process, python,
    runtime_library,
};

/// How everything is built.
const BUILD: Build = Build::DevWorkspace;
/// Client tests wait most of their time.
const CLIENT_TESTS_AT_ONCE: &str = "4";
/// The tests that belong to no group of the second tier, as an expression of pytest.
const FIRST_TIER: &str = "not plugins and not stores and not browser and not monitoring";
/// How long the tiers may take on a busy machine: together an hour.
const LIMIT: Duration = minutes(40);
const LIMIT_OF_INTEGRATIONS: Duration = minutes(20);

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Its network and the processors of the first steps do not disturb each other.
const DOWNLOADS: CheckStep = CheckStep { name: "downloads", limit: minutes(15), action: downloads };
/// Valgrind uses one processor.
const MEMORY: CheckStep = CheckStep { name: "memory", limit: minutes(15), action: memory };

/// What needs no program that the tests bring.
const FIRST: [CheckStep; 4] = [
    CheckStep { name: "format", limit: minutes(3), action: format },
    CheckStep { name: "gates", limit: minutes(3), action: gates },
    CheckStep { name: "lints", limit: minutes(20), action: lints },
    CheckStep { name: "book", limit: minutes(3), action: docs::make },
];
const TESTS: CheckStep = CheckStep { name: "tests", limit: minutes(30), action: rust_tests };

/// The tests that `--quick` runs.
const TESTS_OF_CHANGES: CheckStep =
    CheckStep { name: "tests of changes", limit: minutes(30), action: rust_tests_of_changes };

/// What `--quick` leaves out.
const FURTHER: [CheckStep; 8] = [
    CheckStep { name: "doc tests", limit: minutes(10), action: doc_tests },
    CheckStep { name: "documentation", limit: minutes(10), action: documentation },
    CheckStep { name: "model checker", limit: minutes(10), action: model_checker },
    CheckStep { name: "python modules", limit: minutes(5), action: python_modules },
    CheckStep { name: "python clients", limit: minutes(30), action: python_clients },
    CheckStep { name: "chaos", limit: minutes(10), action: chaos::of_changes },
    CheckStep { name: "demo", limit: minutes(15), action: demonstrate },
    CheckStep { name: "packages", limit: minutes(10), action: packages },
];

/// The groups of the second tier.
const INTEGRATIONS: [CheckStep; 7] = [
    CheckStep { name: "stores", limit: minutes(15), action: stores },
    CheckStep {
        name: "clients of stores",
        limit: minutes(15),
        action: || clients_of("clients of stores", "stores", tools::STORES),
    },
    CheckStep {
        name: "plug-ins",
        limit: minutes(15),
        action: || clients_of("plug-ins", "plugins", tools::PLUGINS),
    },
    CheckStep {
        name: "browser",
        limit: minutes(10),
        action: || clients_of("browser", "browser", tools::BROWSER),
    },
    CheckStep {
        name: "monitoring",
        limit: minutes(10),
        action: || clients_of("monitoring", "monitoring", tools::MONITORING),
    },
    CheckStep { name: "dependencies", limit: minutes(15), action: dependencies::rules },
    CheckStep { name: "advisories", limit: minutes(5), action: dependencies::advisories },
];

/// Which steps of a tier are wanted.
pub(crate) enum Selection {
    All,
    /// The steps of the first tier that need no client.
    Quick,
    /// Those whose name contains this.
    Only(String),
}

/// Runs the first tier. Returns whether all passed.
///
/// # Errors
/// No step has the wanted name, or the run cannot begin.
pub(crate) fn test(selection: &Selection) -> Result<bool> {
    if let Selection::Only(text) = selection {
        let all: Vec<_> = FIRST.iter().chain([&TESTS, &MEMORY]).chain(&FURTHER).collect();
        return only(text, &all, LIMIT);
    }
    let mut steps = Steps::new(LIMIT)?;
    let downloads = steps.start(&DOWNLOADS);
    for step in &FIRST {
        steps.run(step);
    }
    steps.finish(downloads);
    if matches!(selection, Selection::Quick) {
        steps.run(&TESTS_OF_CHANGES);
    } else {
        steps.run(&TESTS);
        let memory = steps.start(&MEMORY);
        for step in &FURTHER {
            steps.run(step);
        }
        steps.finish(memory);
    }
    Ok(steps.summary())
}

/// Runs the second tier. Returns whether all passed.
///
/// # Errors
/// As [`test()`].
pub(crate) fn integrations(selection: &Selection) -> Result<bool> {
    let text = match selection {
        Selection::All => "",
        Selection::Only(text) => text,
        Selection::Quick => bail!("--quick is of the first tier"),
    };
    only(text, &INTEGRATIONS.iter().collect::<Vec<_>>(), LIMIT_OF_INTEGRATIONS)
}

fn only(text: &str, all: &[&CheckStep], limit: Duration) -> Result<bool> {
    let wanted: Vec<_> = all.iter().filter(|step| step.name.contains(text)).collect();
    if wanted.is_empty() {
        let names: Vec<_> = all.iter().map(|step| step.name).collect();
        bail!("no step has '{text}' in its name; there are: {}", names.join(", "));
    }
    let mut steps = Steps::new(limit)?;
    for step in wanted {
        steps.run(step);
    }
    Ok(steps.summary())
}

/// All steps of both tiers.
pub(crate) fn steps() -> impl Iterator<Item = &'static CheckStep> {
    [&DOWNLOADS, &MEMORY, &TESTS, &TESTS_OF_CHANGES]
        .into_iter()
        .chain(&FIRST)
        .chain(&FURTHER)
        .chain(&INTEGRATIONS)
}

fn downloads() -> Result<()> {
    tools::set_up(false)
}

fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn gates() -> Result<()> {
    ensure!(gates::run()?, "a rule is broken");
    Ok(())
}

fn lints() -> Result<()> {
    process::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn memory() -> Result<()> {
    memcheck::run(Some(memcheck::FEW))
}

/// All Rust tests but those that belong to the second tier, which are ignored here.
fn rust_tests() -> Result<()> {
    rust_tests_with("tests", &["--workspace"])
}

/// The same, of the packages that have changed since the last commit, and of those that depend on them.
fn rust_tests_of_changes() -> Result<()> {
    match changes::packages()? {
        Some(changed) if changed.is_empty() => {
            bail!(CannotRun("nothing has changed since the last commit".to_owned()))
        }
        Some(changed) => {
            println!("changed: {}", changed.join(", "));
            let filter: Vec<_> = changed.iter().map(|name| format!("rdeps({name})")).collect();
            rust_tests_with("tests of changes", &["--workspace", "-E", &filter.join(" + ")])
        }
        None => rust_tests_with("tests of changes", &["--workspace"]),
    }
}

fn rust_tests_with(step: &str, arguments: &[&str]) -> Result<()> {
    // Programs in C are linked with this library. No Rust test is, so cargo would not build it for the tests.
    BUILD.run(&["nereid-libtritonserver"])?;
    // The tests of the backend for Python run models in this environment.
    python::install("tests/requirements.txt")?;
    let variables = tools::fetch(tools::OF_TESTS)?;
    nextest(step, arguments, &variables)
}

/// Runs Rust tests and keeps their report for the summary.
fn nextest(step: &str, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Result<()> {
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

fn doc_tests() -> Result<()> {
    let mut command = cargo(&["test", "--workspace", "--locked", "--doc"]);
    process::run(command.env(runtime_library::VARIABLE, runtime_library::fetch()?))
}

fn documentation() -> Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--locked", "--no-deps"]);
    process::run(doc.env("RUSTDOCFLAGS", "--deny warnings"))
}

fn model_checker() -> Result<()> {
    deepcheck::model_checker(deepcheck::FEW_SWITCHES)
}

/// pytest with a report for the summary.
fn pytest(step: &str) -> Command {
    let mut pytest = python::command();
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "-rsfE"]);
    pytest.arg("--junitxml").arg(steps::file(step, "xml"));
    pytest
}

/// The modules that the server gives to models in Python, without a server.
fn python_modules() -> Result<()> {
    python::install("tests/requirements.txt")?;
    process::run(pytest("python modules").arg("crates/backend-python/python/tests"))
}

fn python_clients() -> Result<()> {
    client_tests("python clients", FIRST_TIER, &[])
}

/// A group of the second tier.
fn clients_of(step: &str, marker: &str, tools: &[Tool]) -> Result<()> {
    client_tests(step, marker, &tools::fetch(tools)?)
}

/// The client tests that an expression over their markers selects.
fn client_tests(step: &str, markers: &str, variables: &[(&str, PathBuf)]) -> Result<()> {
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

/// Object stores, by the tests of their crate.
fn stores() -> Result<()> {
    let ignored = ["--package", "nereid-object-stores", "--run-ignored", "only"];
    nextest("stores", &ignored, &tools::fetch(tools::STORES)?)
}

/// A debug build of the demo.
fn demonstrate() -> Result<()> {
    let port_base = process::free_port_base()?;
    ensure!(demo::run(&demo::DemoOptions { port_base, once: true, build: BUILD })?, "the demo failed");
    Ok(())
}

/// Packages of a debug build, installed in clean places.
fn packages() -> Result<()> {
    if !debian::is_here() {
        bail!(CannotRun("packages are made with Debian's tools".to_owned()));
    }
    ensure!(dist::run(&dist::DistOptions::for_tests())?, "the packages cannot be made");
    python::install("tests/requirements.txt")?;
    let mut pytest = pytest("packages");
    process::run(pytest.arg("tests/packages").env("NEREID_DIST", workspace::target().join("dist")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_has_a_name_of_its_own() {
        let names: Vec<_> = steps().map(|step| steps::file(step.name, "log")).collect();
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn a_wrong_name_is_answered_with_all_names() {
        let error = test(&Selection::Only("bogus".into())).unwrap_err().to_string();
        assert!(error.contains("'bogus'") && error.contains("python clients"), "{error}");
    }
}
