//! The allocators that users preload: tcmalloc and jemalloc, from the packages of Debian and Ubuntu.
//!
//! The packages are only unpacked below `target/`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::debian::{find, unpack};
use crate::workspace;

/// An allocator in a shared library.
pub(crate) struct Allocator {
    /// The name of its folder.
    name: &'static str,
    /// The names of the package in different releases.
    packages: &'static [&'static str],
    /// How the name of the library begins.
    library: &'static str,
}

pub(crate) const TCMALLOC: Allocator = Allocator {
    name: "tcmalloc",
    packages: &["libtcmalloc-minimal4t64", "libtcmalloc-minimal4"],
    library: "libtcmalloc_minimal.so.",
};
pub(crate) const JEMALLOC: Allocator =
    Allocator { name: "jemalloc", packages: &["libjemalloc2"], library: "libjemalloc.so." };

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
