//! `cargo xtask test`: the steps that a change must pass, and that need no large foreign package.
//!
//! Each step fetches what it needs, so that it also runs alone.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::steps::{self, CannotRun, CheckStep, Steps};
use crate::test_runners::{BUILD, client_tests, nextest, pytest};
use crate::tools::{self, debian, runtime_library};
use crate::workspace::{self, cargo};
use crate::{changes, chaos, deepcheck, demo, dist, docs, gates, loopback, memcheck, process, python, setup};

/// The client tests that belong to no group of `cargo xtask integrations`, as an expression of pytest.
const NO_INTEGRATION: &str = "not plugins and not nvidia and not stores and not browser and not monitoring and not recipes and not examples and \
     not pytorch and not vllm_backend and not redis_library and not chart and not others and not ray";
/// How long all steps may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(40);

/// Its network and the processors of the first steps do not disturb each other.
const DOWNLOADS: CheckStep =
    CheckStep { name: "downloads", limit: Duration::from_mins(15), action: downloads };

/// What needs no program that the tests bring.
const FIRST: [CheckStep; 4] = [
    CheckStep { name: "format", limit: Duration::from_mins(3), action: format },
    CheckStep { name: "gates", limit: Duration::from_mins(3), action: gates },
    CheckStep { name: "lints", limit: Duration::from_mins(20), action: lints },
    CheckStep { name: "book", limit: Duration::from_mins(3), action: docs::make },
];
const TESTS: CheckStep = CheckStep { name: "tests", limit: Duration::from_mins(30), action: rust_tests };

/// The tests that `--quick` runs.
const TESTS_OF_CHANGES: CheckStep =
    CheckStep { name: "tests of changes", limit: Duration::from_mins(30), action: rust_tests_of_changes };

/// What `--quick` leaves out.
const FURTHER: [CheckStep; 6] = [
    CheckStep { name: "doc tests", limit: Duration::from_mins(10), action: doc_tests },
    CheckStep { name: "documentation", limit: Duration::from_mins(10), action: documentation },
    CheckStep { name: "model checker", limit: Duration::from_mins(10), action: model_checker },
    CheckStep { name: "python modules", limit: Duration::from_mins(5), action: python_modules },
    CheckStep { name: "python clients", limit: Duration::from_mins(30), action: python_clients },
    CheckStep { name: "chaos", limit: Duration::from_mins(10), action: chaos::of_changes },
];

/// The same, beside those: valgrind uses one processor, and the others wait half of their time.
const BESIDE: [CheckStep; 3] = [
    CheckStep { name: "memory", limit: Duration::from_mins(15), action: memory },
    CheckStep { name: "demo", limit: Duration::from_mins(15), action: demonstrate },
    CheckStep { name: "packages", limit: Duration::from_mins(15), action: packages },
];

/// Which steps are wanted.
pub(crate) enum Selection {
    All,
    /// Those that need no client.
    Quick,
    /// Those whose name contains this.
    Only(String),
}

/// Runs the wanted steps. Returns whether all passed.
///
/// # Errors
/// No step has the wanted name, or the run cannot begin.
pub(crate) fn run(selection: &Selection) -> Result<bool> {
    if let Selection::Only(text) = selection {
        let all = [&FIRST[..], &[TESTS], &FURTHER, &BESIDE].concat();
        return steps::run_only(text, &all, LIMIT);
    }
    let mut steps = Steps::new(LIMIT)?;
    steps.run_beside(&[DOWNLOADS]);
    steps.run_all(&FIRST);
    steps.finish_lanes();
    if matches!(selection, Selection::Quick) {
        steps.run(&TESTS_OF_CHANGES);
    } else {
        steps.run(&TESTS);
        steps.run_beside(&BESIDE);
        steps.run_all(&FURTHER);
        steps.finish_lanes();
    }
    Ok(steps.summary())
}

/// All steps.
pub(crate) fn steps() -> impl Iterator<Item = &'static CheckStep> {
    [&DOWNLOADS, &TESTS, &TESTS_OF_CHANGES].into_iter().chain(&FIRST).chain(&FURTHER).chain(&BESIDE)
}

fn downloads() -> Result<()> {
    setup::run(false)
}

fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn gates() -> Result<()> {
    ensure!(gates::run(gates::Upkeep::Report)?, "a rule is broken");
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

/// All Rust tests but those of `cargo xtask integrations`, which are ignored here.
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
    BUILD.run(&["libtritonserver"])?;
    // The tests of the backend for Python run models in this environment.
    python::install("tests/requirements.txt")?;
    let variables = tools::fetch(tools::OF_TESTS)?;
    nextest(step, arguments, &variables)
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

/// The modules that the server gives to models in Python, without a server.
fn python_modules() -> Result<()> {
    python::install("tests/requirements.txt")?;
    process::run(pytest("python modules").arg("crates/backend-python/python/tests"))
}

fn python_clients() -> Result<()> {
    client_tests("python clients", NO_INTEGRATION, &[])
}

/// A debug build of the demo.
fn demonstrate() -> Result<()> {
    let port_base = loopback::free_port_base()?;
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
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_all_names() {
        let error = run(&Selection::Only("bogus".into())).unwrap_err().to_string();
        assert!(error.contains("'bogus'") && error.contains("python clients"), "{error}");
    }
}
