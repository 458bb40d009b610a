//! The allocators that users preload: tcmalloc and jemalloc, from the packages of Debian and Ubuntu.
//!
//! The packages are only unpacked below `target/`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::debian::{find, unpack};
use crate::{files, workspace};

/// An allocator in a shared library.
pub(super) struct Allocator {
    /// The name of its folder.
    name: &'static str,
    /// The names of the package in different releases.
    packages: &'static [&'static str],
    /// How the name of the library begins.
    library: &'static str,
}

pub(super) const TCMALLOC: Allocator = Allocator {
    name: "tcmalloc",
    packages: &["libtcmalloc-minimal4t64", "libtcmalloc-minimal4"],
    library: "libtcmalloc_minimal.so.",
};
pub(super) const JEMALLOC: Allocator =
    Allocator { name: "jemalloc", packages: &["libjemalloc2"], library: "libjemalloc.so." };

impl Allocator {
    /// Downloads the library unless it is there, and returns its path.
    ///
    /// # Errors
    /// The system has no `apt-get`, or no package of these names can be downloaded.
    pub(super) fn fetch(&self) -> Result<PathBuf> {
        let folder = workspace::target().join("allocators").join(self.name);
        files::make_once(&folder, |unfinished| {
            let mut packages = self.packages.iter();
            if !packages.any(|package| unpack(package, unfinished).is_ok()) {
                bail!("apt-get cannot download {}", self.packages.join(" or "));
            }
            Ok(())
        })?;
        find(&folder, self.library)?
            .with_context(|| format!("there is no {}* in {}", self.library, folder.display()))
    }
}
