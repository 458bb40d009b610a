//! Paths of the workspace, and what cargo and the compiler report.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask lies below the root").to_owned()
}

/// The folder for everything that can be made again.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The cargo that runs this program, started in the root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Whether `cargo NAME` exists.
pub(crate) fn has_cargo_command(name: &str) -> bool {
    let status = cargo(&[name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The packages of the workspace as `cargo metadata` describes them.
pub(crate) fn packages() -> Result<Vec<Value>> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    let mut metadata: Value =
        serde_json::from_str(&process::output(&mut command)?).context("cargo metadata is not JSON")?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => anyhow::bail!("cargo metadata names no packages"),
    }
}

/// The target triple of this machine.
pub(crate) fn host() -> Result<String> {
    let about = process::output(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what it runs on")
}
