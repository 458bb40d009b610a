//! Packages of npm that tests use, each in a folder of its own below `target/node`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{files, process, workspace};

/// It finds what keeps people from using a page: with a keyboard, with a screen reader, with weak eyes.
pub(super) const AXE: NpmPackage =
    NpmPackage { name: "axe-core", version: "4.14.1", file: "node_modules/axe-core/axe.min.js" };

/// A server that stands for the object store of Azure.
pub(super) const AZURITE: NpmPackage =
    NpmPackage { name: "azurite", version: "3.35.0", file: "node_modules/.bin/azurite-blob" };

/// A package, and the file of it that tests need.
pub(super) struct NpmPackage {
    /// The name of the package.
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) file: &'static str,
}

impl NpmPackage {
    /// Installs the package unless it is there, and returns the file.
    ///
    /// # Errors
    /// There is no npm, or its registry cannot be reached.
    pub(super) fn install(&self) -> Result<PathBuf> {
        let Self { name, version, file } = self;
        // The name contains the version, so that another version is installed again.
        let folder = workspace::target().join("node").join(format!("{name}-{version}"));
        files::make_once(&folder, |unfinished| {
            process::require("npm", "npm")?;
            let mut install = Command::new("npm");
            install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix"]);
            install.arg(unfinished).arg(format!("{name}@{version}"));
            process::run(&mut install).with_context(|| format!("{name} cannot be installed"))?;
            ensure!(unfinished.join(file).is_file(), "{name} has no file {file}");
            Ok(())
        })?;
        Ok(folder.join(file))
    }
}
