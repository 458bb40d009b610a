//! axe-core, which finds in a browser what keeps people from using a page. It comes from npm.
//!
//! A machine without npm skips the tests that need it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{process, workspace};

/// The environment variable that tells the tests where the script is.
pub(crate) const VARIABLE: &str = "NEREID_TEST_AXE";

const VERSION: &str = "4.14.1";

/// Downloads the script unless it is there, and returns it.
///
/// # Errors
/// There is no npm, or its registry cannot be reached.
pub(crate) fn fetch() -> Result<PathBuf> {
    // The name contains the version, so that another version is downloaded again.
    let folder = workspace::target().join("node").join(format!("axe-core-{VERSION}"));
    let script = "package/axe.min.js";
    if folder.exists() {
        return Ok(folder.join(script));
    }
    let npm = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !npm.is_ok_and(|status| status.success()) {
        bail!("npm is needed for axe-core");
    }
    let unfinished = folder.with_added_extension("part");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let package = format!("axe-core@{VERSION}");
    let mut pack = Command::new("npm");
    pack.args(["pack", &package, "--silent"]).current_dir(&unfinished).stdout(Stdio::null());
    process::run(&mut pack).context("axe-core cannot be downloaded")?;
    let mut unpack = Command::new("tar");
    unpack.args(["-xzf", &format!("axe-core-{VERSION}.tgz")]).current_dir(&unfinished);
    process::run(&mut unpack)?;
    ensure!(unfinished.join(script).is_file(), "axe-core has no file {script}");
    fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join(script))
}
