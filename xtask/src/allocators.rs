//! The allocators that users preload: tcmalloc and jemalloc, from the packages of Debian and Ubuntu.
//!
//! The packages are only unpacked below `target/`. A machine that cannot download one of them skips its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// An allocator in a shared library.
pub(crate) struct Allocator {
    /// The name in the output.
    pub(crate) name: &'static str,
    /// The environment variable that tells the tests where the library is.
    pub(crate) variable: &'static str,
    /// The names of the package in different releases.
    packages: &'static [&'static str],
    /// How the name of the library begins.
    library: &'static str,
}

/// All allocators that are tested.
pub(crate) const ALL: [Allocator; 2] = [
    Allocator {
        name: "tcmalloc",
        variable: "NEREID_TEST_TCMALLOC",
        packages: &["libtcmalloc-minimal4t64", "libtcmalloc-minimal4"],
        library: "libtcmalloc_minimal.so.",
    },
    Allocator {
        name: "jemalloc",
        variable: "NEREID_TEST_JEMALLOC",
        packages: &["libjemalloc2"],
        library: "libjemalloc.so.",
    },
];

impl Allocator {
    /// Downloads the library unless it is there, and returns its path.
    ///
    /// # Errors
    /// The system has no `apt-get`, or no package of these names can be downloaded.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let folder = workspace::target().join("allocators").join(self.name);
        if !folder.exists() {
            let unfinished = folder.with_added_extension("part");
            let mut packages = self.packages.iter();
            if !packages.any(|package| unpack(package, &unfinished).is_ok()) {
                bail!("apt-get cannot download {}", self.packages.join(" or "));
            }
            fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        find(&folder, self.library)?
            .with_context(|| format!("there is no {}* in {}", self.library, folder.display()))
    }
}

/// Downloads a package and unpacks it into a new folder.
fn unpack(package: &str, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    process::run(Command::new("apt-get").args(["download", package]).current_dir(folder))?;
    let archive = find(folder, package)?.context("apt-get has downloaded nothing")?;
    process::run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(folder))
}

/// A file below the folder whose name begins so.
fn find(folder: &Path, beginning: &str) -> Result<Option<PathBuf>> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with(beginning) {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}
