//! Packages of npm that tests use, each in a folder of its own below `target/node`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{process, tools, workspace};

/// It finds what keeps people from using a page: with a keyboard, with a screen reader, with weak eyes.
pub(crate) const AXE: NpmPackage =
    NpmPackage { name: "axe-core", version: "4.14.1", file: "node_modules/axe-core/axe.min.js" };

/// A package, and the file of it that tests need.
pub(crate) struct NpmPackage {
    /// The name of the package.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) file: &'static str,
}

impl NpmPackage {
    /// Installs the package unless it is there, and returns the file.
    ///
    /// # Errors
    /// There is no npm, or its registry cannot be reached.
    pub(crate) fn install(&self) -> Result<PathBuf> {
        let Self { name, version, file } = self;
        // The name contains the version, so that another version is installed again.
        let folder = workspace::target().join("node").join(format!("{name}-{version}"));
        if folder.exists() {
            return Ok(folder.join(file));
        }
        tools::require("npm", "npm")?;
        let unfinished = folder.with_added_extension("part");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)
                .with_context(|| format!("cannot remove {}", unfinished.display()))?;
        }
        fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix"]);
        install.arg(&unfinished).arg(format!("{name}@{version}"));
        process::run(&mut install).with_context(|| format!("{name} cannot be installed"))?;
        ensure!(unfinished.join(file).is_file(), "{name} has no file {file}");
        fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder.join(file))
    }
}
