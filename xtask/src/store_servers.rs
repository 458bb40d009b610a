//! The servers that stand for object stores in the tests: moto for S3 (from PyPI), azurite for Azure (from npm).
//!
//! moto is in `tests/requirements.txt`. A machine that cannot install one of the servers skips its tests.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{process, python, workspace};

/// The environment variable that tells the tests where the program of moto's server is.
pub(crate) const MOTO: &str = "NEREID_TEST_MOTO";
/// The same for azurite's server of blobs.
pub(crate) const AZURITE: &str = "NEREID_TEST_AZURITE";

const AZURITE_VERSION: &str = "3.35.0";

/// Installs moto unless it is there, and returns its program.
///
/// # Errors
/// There is no Python, or the packages cannot be installed.
pub(crate) fn moto() -> Result<PathBuf> {
    python::install("tests/requirements.txt")?;
    let program = workspace::target().join("venv/bin/moto_server");
    ensure!(program.is_file(), "there is no {}", program.display());
    Ok(program)
}

/// Installs azurite unless it is there, and returns its program.
///
/// # Errors
/// There is no npm, or its registry cannot be reached.
pub(crate) fn azurite() -> Result<PathBuf> {
    // The name contains the version, so that another version is installed again.
    let folder = workspace::target().join("node").join(format!("azurite-{AZURITE_VERSION}"));
    let program = "node_modules/.bin/azurite-blob";
    if folder.exists() {
        return Ok(folder.join(program));
    }
    let npm = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !npm.is_ok_and(|status| status.success()) {
        bail!("npm is needed for azurite");
    }
    let unfinished = folder.with_added_extension("part");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix"]);
    install.arg(&unfinished).arg(format!("azurite@{AZURITE_VERSION}"));
    process::run(&mut install).context("azurite cannot be installed")?;
    ensure!(unfinished.join(program).is_file(), "azurite has no program {program}");
    fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join(program))
}
