//! Packages of Debian and Ubuntu. They are only unpacked below `target/`, never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{files, process};

/// Whether the system has Debian's tools.
pub(crate) fn is_here() -> bool {
    ["apt-get", "dpkg", "dpkg-deb"].into_iter().all(process::starts)
}

/// Downloads a package and unpacks it into a new folder.
///
/// # Errors
/// The system has no `apt-get`, or the package cannot be downloaded.
pub(crate) fn unpack(package: &str, folder: &Path) -> Result<()> {
    files::make_empty(folder)?;
    process::run(Command::new("apt-get").args(["download", package]).current_dir(folder))?;
    let archive = find(folder, package)?.context("apt-get has downloaded nothing")?;
    process::run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(folder))
}

/// As [`unpack`], with those packages that it needs and the system does not have.
///
/// # Errors
/// As [`unpack`].
pub(crate) fn unpack_with_dependencies(package: &str, folder: &Path) -> Result<()> {
    files::make_empty(folder)?;
    let archives = folder.join("archives");
    fs::create_dir(&archives)?;
    let mut download = Command::new("apt-get");
    // Without an installation there is nothing to lock. So this needs no rights.
    download.args([
        "install",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        "-o",
        "Debug::NoLocking=1",
    ]);
    download.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display())).arg(package);
    process::run(&mut download)?;
    let mut unpacked = 0;
    for entry in fs::read_dir(&archives)? {
        let archive = entry?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            process::run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(folder))?;
            unpacked += 1;
        }
    }
    ensure!(unpacked > 0, "apt-get has downloaded nothing");
    fs::remove_dir_all(&archives)?;
    Ok(())
}

/// A file below the folder whose name begins so.
pub(crate) fn find(folder: &Path, beginning: &str) -> Result<Option<PathBuf>> {
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
