//! NVIDIA's programs from PyPI: `perf_analyzer`, and the Python packages `tritonserver` and `tritonfrontend`.
//!
//! They are compiled for a newer system than the tests may have. So scripts start them, on an older system with the
//! libraries of Debian 13. The Python packages exist for Python 3.12 only, which nothing here can install: if the system has
//! none, there is no script `python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::debian;
use crate::{files, process, python, workspace};

/// The environment variable that tells the tests where the scripts are.
pub(super) const VARIABLE: &str = "NEREID_TEST_NVIDIA";

const PERF_ANALYZER: &str = "2.60.0";
const TRITON: &str = "2.73.0";

/// The first minor version of glibc 2 that is new enough.
const GLIBC: u32 = 39;

/// The release of Debian that has it, and the packages whose libraries the programs use.
const RELEASE: &str = "trixie";
const LIBRARIES: [&str; 5] = ["libc6", "libgcc-s1", "libssl3t64", "libstdc++6", "zlib1g"];

/// What wheels say about the system that they are made for. pip takes no such wheel for an older system by itself.
const PLATFORMS: [&str; 4] =
    ["manylinux_2_39_x86_64", "manylinux_2_38_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"];

/// The name of Python, also for pyenv, which has a program of this name whether or not this version is the chosen one.
const PYTHON: (&str, &str) = ("python3.12", "3.12");

/// Downloads the programs unless they exist, and returns the folder with their scripts.
///
/// # Errors
/// PyPI or Debian's servers cannot be reached, or they have nothing for this machine.
pub(super) fn fetch() -> Result<PathBuf> {
    let folder = workspace::target().join("nvidia").join(format!("{TRITON}-perf_analyzer-{PERF_ANALYZER}"));
    files::make_once(&folder, |unfinished| {
        if !is_system_new()? {
            debian::unpack_of_release(RELEASE, &LIBRARIES, &unfinished.join("system"))?;
        }
        install(&[&format!("perf-analyzer=={PERF_ANALYZER}")], &unfinished.join("packages"))?;
        let program = "packages/perf_analyzer/bin/perf_analyzer";
        files::make_executable(&unfinished.join(program))?;
        write_script(unfinished, "perf_analyzer", program)
    })?;
    if process::output(interpreter().arg("--version")).is_ok() {
        files::make_once(&folder.join("environment"), |unfinished| {
            process::run(interpreter().args(["-m", "venv", "--without-pip"]).arg(unfinished))?;
            let packages = [&*format!("tritonserver=={TRITON}"), &format!("tritonfrontend=={TRITON}")];
            install(&packages, &unfinished.join(format!("lib/{}/site-packages", PYTHON.0)))
        })?;
        write_script(&folder, "python", "environment/bin/python3")?;
    }
    Ok(folder)
}

/// Whether the programs run with the libraries of the system.
fn is_system_new() -> Result<bool> {
    let version = process::output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let minor = version.trim().strip_prefix("glibc 2.").and_then(|minor| minor.parse::<u32>().ok());
    Ok(minor.is_some_and(|minor| minor >= GLIBC))
}

fn interpreter() -> Command {
    let mut python = Command::new(PYTHON.0);
    python.env("PYENV_VERSION", PYTHON.1);
    python
}

/// Installs packages into a folder, with what they need.
fn install(packages: &[&str], folder: &Path) -> Result<()> {
    python::make()?;
    let mut pip = python::command();
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--only-binary=:all:"]);
    // pip compares the version that a wheel asks for with its own Python.
    pip.args(["--ignore-requires-python", "--python-version", PYTHON.1, "--implementation", "cp"]);
    pip.args(PLATFORMS.iter().flat_map(|platform| ["--platform", platform]));
    process::run(pip.arg("--target").arg(folder).args(packages))
}

/// Writes a script that starts a program of the folder, with the libraries of Debian 13 if they are there.
fn write_script(folder: &Path, name: &str, program: &str) -> Result<()> {
    let script = folder.join(name);
    let text = format!(
        r#"#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
program=$here/{program}
libraries=$here/system/usr/lib/x86_64-linux-gnu
[ -d "$libraries" ] || exec "$program" "$@"
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" \
    --argv0 "$program" "$program" "$@"
"#
    );
    files::write(&script, text)?;
    files::make_executable(&script)
}
