//! `cargo xtask test`: all checks that a change must pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::BackgroundProcess;
use crate::steps::Steps;
use crate::workspace::{Build, cargo};
use crate::{
    allocators, debian, debian_program, deepcheck, demo, dist, docs, gates, memcheck, npm_package, plugins,
    process, python, runtime_library, store_servers, workspace,
};

/// How everything is built.
const BUILD: Build = Build::DevWorkspace;
/// Many client tests wait most of their time.
const CLIENT_TESTS_AT_ONCE: &str = "2";

/// Runs all steps and prints their results. Returns whether all passed.
pub(crate) fn run(quick: bool) -> Result<bool> {
    let mut steps = Steps::new();
    let downloads = beside(&["setup"]);
    steps.run("format", || process::run(&mut cargo(&["fmt", "--all", "--check"])));
    steps.run("gates", || {
        ensure!(gates::run()?, "a rule is broken");
        Ok(())
    });
    steps.run("lints", || {
        let lints = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
        process::run(&mut cargo(&lints))
    });
    // The steps that need something download what is missing, or tell why they cannot.
    steps.attempt("downloads", || downloads?.finish());
    steps.run("onnxruntime", || {
        println!("{}", runtime_library::fetch()?.display());
        Ok(())
    });
    steps.run("book", docs::make);
    let servers = install_servers(&mut steps);
    // The tests of the backend for Python run models in this environment.
    steps.run("python packages", || python::install("tests/requirements.txt"));
    steps.run("tests", || tests(&servers));
    if quick {
        return Ok(steps.summary());
    }
    let memory = match memcheck::cannot_be() {
        // Valgrind uses one processor.
        None => Ok(beside(&["memcheck", "--requests", memcheck::FEW])),
        Some(reason) => Err(reason),
    };
    steps.run("doc tests", || {
        process::run(&mut with_library(cargo(&["test", "--workspace", "--locked", "--doc"]))?)
    });
    steps.run("documentation", || {
        let mut doc = cargo(&["doc", "--workspace", "--locked", "--no-deps"]);
        process::run(doc.env("RUSTDOCFLAGS", "--deny warnings"))
    });
    steps.run("model checker", || deepcheck::model_checker(deepcheck::FEW_SWITCHES));
    match memory {
        Ok(memory) => steps.run("memory", || memory?.finish()),
        Err(reason) => steps.skip("memory", reason),
    }
    steps.run("python modules", python_modules);
    let mut brought = None;
    steps.attempt("plug-ins", || {
        let folder = plugins::fetch()?;
        println!("{}", folder.display());
        brought = Some(folder);
        Ok(())
    });
    let mut brought_programs = servers;
    brought_programs.extend(fetch_allocators(&mut steps));
    steps.run("python clients", || python_clients(brought.as_deref(), &brought_programs));
    steps.run("demo", || {
        let port_base = process::free_port_base()?;
        ensure!(demo::run(&demo::DemoOptions { port_base, once: true, build: BUILD })?, "the demo failed");
        Ok(())
    });
    if debian::is_here() {
        steps.run("packages", packages);
    } else {
        steps.skip("packages", "packages are made with Debian's tools");
    }
    if workspace::has_cargo_command("deny") {
        // The advisories come from a repository of their own, which needs a network.
        steps.run("deny", || process::run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"])));
    } else {
        steps.skip("deny", "cargo-deny is not installed");
    }
    Ok(steps.summary())
}

/// Starts another chore beside this one.
fn beside(words: &[&str]) -> Result<BackgroundProcess> {
    let target = workspace::target();
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    // This program, also after cargo has built it again.
    let mut chore = Command::new("/proc/self/exe");
    BackgroundProcess::start(chore.args(words), target.join(format!("{}.log", words[0])))
}

/// The variables and programs of those servers that can be installed.
fn install_servers(steps: &mut Steps) -> Vec<(&'static str, PathBuf)> {
    let mut servers = Vec::new();
    let mut install = |name: &str, variable: &'static str, install: &dyn Fn() -> Result<PathBuf>| {
        steps.attempt(name, || {
            let program = install()?;
            println!("{}", program.display());
            servers.push((variable, program));
            Ok(())
        });
    };
    install("moto", store_servers::MOTO, &store_servers::moto);
    install("azurite", store_servers::AZURITE, &store_servers::azurite);
    install(npm_package::AXE.name, npm_package::AXE.variable, &|| npm_package::AXE.install());
    for program in debian_program::ALL {
        install(program.name, program.variable, &|| program.fetch());
    }
    servers
}

/// `servers` are the variables and programs of those servers that could be installed. Tests that need others do nothing.
fn tests(servers: &[(&str, PathBuf)]) -> Result<()> {
    // Programs in C are linked with this library. No Rust test is, so cargo would not build it for the tests.
    BUILD.run(&["nereid-libtritonserver"])?;
    let command = if workspace::has_cargo_command("nextest") {
        cargo(&["nextest", "run", "--workspace", "--locked", "--no-fail-fast"])
    } else {
        cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"])
    };
    let mut command = with_library(command)?;
    command.envs(servers.iter().map(|(variable, program)| (variable, program)));
    process::run(&mut command)
}

/// The variables and libraries of those allocators that can be fetched.
fn fetch_allocators(steps: &mut Steps) -> Vec<(&'static str, PathBuf)> {
    let mut fetched = Vec::new();
    for allocator in allocators::ALL {
        steps.attempt(allocator.name, || {
            let library = allocator.fetch()?;
            println!("{}", library.display());
            fetched.push((allocator.variable, library));
            Ok(())
        });
    }
    fetched
}

/// The modules that the server gives to models in Python, without a server.
fn python_modules() -> Result<()> {
    let mut pytest = python::command();
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "-q", "crates/backend-python/python/tests"]);
    process::run(&mut pytest)
}

/// Packages of a debug build, installed in clean places.
fn packages() -> Result<()> {
    ensure!(dist::run(&dist::DistOptions::for_tests())?, "the packages cannot be made");
    let mut pytest = python::command();
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-rsfE", "tests/packages"])
        .env("NEREID_DIST", workspace::target().join("dist"));
    process::run_repeating(&mut pytest, &["FAILED ", "ERROR "])
}

/// Without `plugins`, the tests that need Triton's plug-ins are skipped. `programs` are the variables and paths of those
/// stores and allocators that could be installed; tests that need others are skipped.
fn python_clients(plugins: Option<&Path>, programs: &[(&str, PathBuf)]) -> Result<()> {
    let server = BUILD.server()?;
    let mut pytest = with_library(python::command())?;
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-rsfE"])
        // The tests of a file share servers.
        .args(["--numprocesses", CLIENT_TESTS_AT_ONCE, "--dist", "loadfile", "tests/clients"])
        .env("NEREID_BINARY", server)
        .envs(programs.iter().map(|(variable, path)| (variable, path)));
    if let Some(plugins) = plugins {
        pytest.env(plugins::VARIABLE, plugins);
    }
    process::run_repeating(&mut pytest, &["FAILED ", "ERROR "])
}

fn with_library(mut command: Command) -> Result<Command> {
    command.env(runtime_library::VARIABLE, runtime_library::fetch()?);
    Ok(command)
}
