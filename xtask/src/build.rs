//! Builds of the programs and libraries of the workspace.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process;
use crate::workspace::{cargo, target};

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
        Ok(self.run(&["server"])?.join("nereid"))
    }

    /// As [`Self::server`], with a limit.
    ///
    /// # Errors
    /// The server cannot be built within this time.
    pub(crate) fn server_within(self, limit: Duration) -> Result<PathBuf> {
        process::run_within(&mut self.command(&["server"]), limit)?;
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
