//! Paths of the workspace, what cargo and the compiler report, and how programs are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// How a program or a library is built.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Build {
    /// Without optimisation, alone.
    Dev,
    /// Without optimisation, with the whole workspace. A package that is built alone has fewer features of its
    /// dependencies, so cargo builds them again. All steps of `cargo xtask test` share this build.
    DevWorkspace,
    /// Optimised, in half the time that a release needs.
    Demo,
    /// Optimised, within minutes.
    Release,
    /// As it is released.
    Dist,
}

impl Build {
    /// Builds these packages and returns the folder of their programs and libraries. Cargo shows its own progress.
    ///
    /// # Errors
    /// A package cannot be built.
    pub(crate) fn run(self, packages: &[&str]) -> Result<PathBuf> {
        process::run(&mut self.command(packages))?;
        Ok(self.folder())
    }

    /// Builds the server and returns its path.
    ///
    /// # Errors
    /// The server cannot be built.
    pub(crate) fn server(self) -> Result<PathBuf> {
        Ok(self.run(&["nereid-server"])?.join("nereid"))
    }

    /// As [`Self::server`], with a limit.
    ///
    /// # Errors
    /// The server cannot be built within this time.
    pub(crate) fn server_within(self, limit: Duration) -> Result<PathBuf> {
        process::run_within(&mut self.command(&["nereid-server"]), limit)?;
        Ok(self.folder().join("nereid"))
    }

    fn command(self, packages: &[&str]) -> Command {
        let profile = match self {
            Build::Dev | Build::DevWorkspace => "dev",
            Build::Demo => "demo",
            Build::Release => "release",
            Build::Dist => "dist",
        };
        let mut build = cargo(&["build", "--locked", "--profile", profile]);
        if self == Build::DevWorkspace {
            build.arg("--workspace");
        } else {
            build.args(packages.iter().flat_map(|package| ["--package", package]));
        }
        build
    }

    fn folder(self) -> PathBuf {
        let name = match self {
            Build::Dev | Build::DevWorkspace => "debug",
            Build::Demo => "demo",
            Build::Release => "release",
            Build::Dist => "dist",
        };
        target().join(name)
    }
}
