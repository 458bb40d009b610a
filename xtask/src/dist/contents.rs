//! What all packages contain.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{licences, sbom};
use crate::build::Build;
use crate::files::{copy, file_name, make_empty, write};
use crate::tools::runtime_library;
use crate::{process, workspace};

/// The names of the server besides `nereid`: that of Triton, and that by which SageMaker starts a container.
pub(super) const OTHER_NAMES: [&str; 2] = ["tritonserver", "serve"];

/// The files for packages, which lie in one folder.
pub(super) struct PackageContents {
    /// The version of the workspace.
    pub(super) version: String,
    pub(super) server: PathBuf,
    /// `libtritonserver.so`.
    pub(super) library: PathBuf,
    pub(super) header: PathBuf,
    /// The licence of the server.
    pub(super) licence: PathBuf,
    /// Those of what it contains.
    pub(super) notices: PathBuf,
    /// The list of its parts, in CycloneDX's format.
    pub(super) sbom: PathBuf,
    /// ONNX Runtime's library, and its licences.
    pub(super) onnxruntime: PathBuf,
    pub(super) onnxruntime_licences: Vec<PathBuf>,
    /// The least release of glibc that the programs need, for example 34 for 2.34.
    pub(super) glibc_minor: u32,
}

impl PackageContents {
    pub(super) fn make(build: Build, folder: &Path) -> Result<PackageContents> {
        make_empty(folder)?;
        let built = build.run(&["server", "libtritonserver"])?;
        let root = workspace::root();
        let contents = PackageContents {
            version: version()?,
            server: folder.join("nereid"),
            library: folder.join("libtritonserver.so"),
            header: root.join("include/nereid.h"),
            licence: root.join("LICENSE"),
            notices: folder.join("THIRD-PARTY-LICENSES.txt"),
            sbom: folder.join("nereid.cdx.json"),
            onnxruntime: runtime_library::fetch()?,
            onnxruntime_licences: runtime_library::licences()?,
            glibc_minor: 0,
        };
        for (from, to) in
            [(built.join("nereid"), &contents.server), (built.join("libtritonserver.so"), &contents.library)]
        {
            copy(&from, to)?;
            // The symbols that plug-ins and C programs use are in a table of their own, which stays.
            process::run(Command::new("strip").arg("--strip-all").arg(to))?;
        }
        let parts = sbom::parts()?;
        write(&contents.notices, &licences::text(&parts)?)?;
        write(&contents.sbom, &sbom::text(&parts, &contents.version)?)?;
        let newest = [&contents.server, &contents.library].map(|file| newest_glibc(file));
        let [server, library] = newest;
        Ok(PackageContents { glibc_minor: server?.max(library?), ..contents })
    }

    /// Copies the server to a folder of programs, and gives it its other names there.
    pub(super) fn copy_server(&self, programs: &Path) -> Result<()> {
        copy(&self.server, &programs.join("nereid"))?;
        for name in OTHER_NAMES {
            let link = programs.join(name);
            symlink("nereid", &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
        Ok(())
    }

    /// The release of Triton that the server follows, such as 2.73.0.
    pub(super) fn triton_version(&self) -> Result<String> {
        let told = process::output(Command::new(&self.server).arg("--version"))?;
        let version = told.split_whitespace().last().context("the server prints no version")?;
        Ok(version.to_owned())
    }

    /// Copies the licences and the list of the parts.
    pub(super) fn copy_licences(&self, to: &Path) -> Result<()> {
        for file in [&self.licence, &self.notices, &self.sbom] {
            copy(file, &to.join(file_name(file)))?;
        }
        for file in &self.onnxruntime_licences {
            copy(file, &to.join("onnxruntime").join(file_name(file)))?;
        }
        Ok(())
    }

    /// Writes the manual page and the completions for shells, which the server prints.
    pub(super) fn write_help(&self, share: &Path) -> Result<()> {
        for (words, place) in [
            (&["man"][..], "man/man1/nereid.1"),
            (&["completions", "bash"], "bash-completion/completions/nereid"),
            (&["completions", "zsh"], "zsh/vendor-completions/_nereid"),
            (&["completions", "fish"], "fish/vendor_completions.d/nereid.fish"),
        ] {
            write(&share.join(place), &process::output(Command::new(&self.server).args(words))?)?;
        }
        Ok(())
    }
}

/// The version of the workspace.
pub(super) fn version() -> Result<String> {
    let packages = workspace::packages()?;
    let server = packages.iter().find(|package| package["name"] == "server");
    let version = server.and_then(|server| server["version"].as_str());
    Ok(version.context("the workspace has no server")?.to_owned())
}

/// The newest release of glibc whose symbols a file uses.
fn newest_glibc(file: &Path) -> Result<u32> {
    let symbols = process::output(Command::new("objdump").arg("--dynamic-syms").arg(file))?;
    let minors = symbols.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    });
    minors.max().with_context(|| format!("{} uses no glibc", file.display()))
}
