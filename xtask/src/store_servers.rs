//! The servers that stand for object stores in the tests: moto for S3 (from PyPI), azurite for Azure (from npm).
//!
//! moto is in `tests/requirements.txt`. A machine that cannot install one of the servers skips its tests.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::npm_package::NpmPackage;
use crate::{python, workspace};

/// The environment variable that tells the tests where the program of moto's server is.
pub(crate) const MOTO: &str = "NEREID_TEST_MOTO";
/// The same for azurite's server of blobs.
pub(crate) const AZURITE: &str = "NEREID_TEST_AZURITE";

const AZURITE_PACKAGE: NpmPackage = NpmPackage {
    name: "azurite",
    version: "3.35.0",
    variable: AZURITE,
    file: "node_modules/.bin/azurite-blob",
};

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
    AZURITE_PACKAGE.install()
}
