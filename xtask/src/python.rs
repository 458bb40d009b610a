//! The Python environment of tests and demo: `target/venv`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// The interpreter of the environment, which must exist, started in the root.
pub(crate) fn command() -> Command {
    let mut command = Command::new(interpreter());
    // Client libraries print warnings about packages that the tests do not use.
    command.current_dir(workspace::root()).env("PYTHONWARNINGS", "ignore").env("PYTHONUNBUFFERED", "1");
    command
}

/// Makes the environment unless it exists.
///
/// # Errors
/// There is no Python 3 with `venv`.
pub(crate) fn make() -> Result<()> {
    let works = |mut command: Command| {
        let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if works(command()) {
        return Ok(());
    }
    if !works(Command::new("python3")) {
        bail!("python3 is needed for this, with its module venv");
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(folder());
    process::run(&mut make).context("making target/venv (on Debian: apt-get install python3-venv)")
}

/// Makes the environment and installs a requirements file of the repository, unless both were done before.
///
/// # Errors
/// There is no Python, or the packages cannot be installed.
pub(crate) fn install(requirements: &str) -> Result<()> {
    make()?;
    let wanted = fs::read_to_string(workspace::root().join(requirements))
        .with_context(|| format!("cannot read {requirements}"))?;
    // The marker is in the environment, so that it is deleted together with it.
    let stamp = folder().join(requirements.replace('/', "-"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut pip = command();
    pip.args([
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "--requirement",
        requirements,
    ]);
    process::run(&mut pip)?;
    fs::write(stamp, wanted).context("cannot write to target/venv")
}

/// The interpreter of the environment, which may not exist yet.
pub(crate) fn interpreter() -> PathBuf {
    folder().join("bin/python")
}

fn folder() -> PathBuf {
    workspace::target().join("venv")
}
