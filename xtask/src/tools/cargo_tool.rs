//! Commands of cargo that are programs of their own.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::{self, cargo};

/// A command of cargo that is a program of its own, with the version that is installed if there is none.
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
}

/// The runner of Rust tests, which has a limit for each.
pub(crate) const NEXTEST: CargoTool = CargoTool { name: "nextest", version: "0.9.143" };
/// It checks the dependencies.
pub(crate) const DENY: CargoTool = CargoTool { name: "deny", version: "0.20.2" };

impl CargoTool {
    /// `cargo NAME` with these arguments.
    ///
    /// # Errors
    /// It is not there, and crates.io does not have it for this compiler.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let arguments = [&[self.name], arguments].concat();
        if workspace::has_cargo_command(self.name) {
            return Ok(cargo(&arguments));
        }
        let folder = workspace::target().join("tools");
        if !folder.join("bin").join(format!("cargo-{}", self.name)).is_file() {
            let package = format!("cargo-{}", self.name);
            println!("{package} is not installed: building version {} in {}", self.version, folder.display());
            // A debug build takes half the time, and the tool runs for seconds.
            let mut install =
                cargo(&["install", "--debug", "--locked", "--version", self.version, &package, "--root"]);
            process::run(install.arg(&folder)).with_context(|| format!("{package} cannot be had"))?;
        }
        let mut command = cargo(&arguments);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path)))?;
        command.env("PATH", path);
        Ok(command)
    }
}
