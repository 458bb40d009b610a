//! Packages of npm that tests use, below `target/node`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{files, process, workspace};

/// It finds what keeps people from using a page: with a keyboard, with a screen reader, with weak eyes.
pub(super) const AXE: NpmPackages =
    NpmPackages { packages: &[("axe-core", "4.14.1")], file: "node_modules/axe-core/axe.min.js" };

/// A server that stands for the object store of Azure.
pub(super) const AZURITE: NpmPackages =
    NpmPackages { packages: &[("azurite", "3.35.0")], file: "node_modules/.bin/azurite-blob" };

/// Clients of HTTP and of gRPC.
pub(super) const CLIENTS: NpmPackages = NpmPackages {
    packages: &[("axios", "1.21.1"), ("@grpc/grpc-js", "1.14.7"), ("@grpc/proto-loader", "0.8.1")],
    file: "node_modules",
};

/// Packages in one folder, and what tests need of it.
pub(super) struct NpmPackages {
    /// The name of each package, and its version.
    pub(super) packages: &'static [(&'static str, &'static str)],
    /// A file or a folder.
    pub(super) file: &'static str,
}

impl NpmPackages {
    /// Installs the packages unless they are there, and returns the file.
    ///
    /// # Errors
    /// There is no npm, or its registry cannot be reached.
    pub(super) fn install(&self) -> Result<PathBuf> {
        let folder = workspace::target().join("node").join(self.folder());
        files::make_once(&folder, |unfinished| {
            process::require("npm", "npm")?;
            let mut install = Command::new("npm");
            install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix"]);
            install.arg(unfinished);
            install.args(self.packages.iter().map(|(name, version)| format!("{name}@{version}")));
            process::run(&mut install).with_context(|| format!("{} cannot be installed", self.folder()))?;
            ensure!(unfinished.join(self.file).exists(), "{} has no file {}", self.folder(), self.file);
            Ok(())
        })?;
        Ok(folder.join(self.file))
    }

    /// The name of the folder. It contains the versions, so that other versions are installed again.
    fn folder(&self) -> String {
        // The name of a package may be that of its owner, a slash and its own.
        let name_of = |(name, version): &(&str, &str)| {
            format!("{}-{version}", name.rsplit('/').next().unwrap_or_default())
        };
        self.packages.iter().map(name_of).collect::<Vec<_>>().join("+")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_its_packages_and_their_versions() {
        assert_eq!(AXE.folder(), "axe-core-4.14.1");
        assert_eq!(CLIENTS.folder(), "axios-1.21.1+grpc-js-1.14.7+proto-loader-0.8.1");
    }
}
