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

/// Downloads packages of a newer release of Debian, and unpacks them into a new folder. The lists of that release come from
/// the servers that the system has its own lists from, and are removed afterwards.
///
/// # Errors
/// The system is no Debian, or the packages cannot be downloaded.
pub(crate) fn unpack_of_release(release: &str, packages: &[&str], folder: &Path) -> Result<()> {
    files::make_empty(folder)?;
    let lists = folder.join("apt");
    files::make_folder(&lists.join("lists/partial"))?;
    write_sources(release, &lists.join("sources"))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-o", "Debug::NoLocking=1", "-o", "Dir::Etc::SourceList=/dev/null"]);
        for (name, place) in
            [("Dir::Etc::SourceParts", "sources"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
        {
            command.arg("-o").arg(format!("{name}={}", lists.join(place).display()));
        }
        process::run(command.args(arguments).current_dir(folder))
    };
    apt(&["update"])?;
    apt(&[&["download"], packages].concat())?;
    for package in packages {
        let archive = find(folder, &format!("{package}_"))?.context("apt-get has downloaded nothing")?;
        process::run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(folder))?;
        fs::remove_file(archive)?;
    }
    files::remove_folder(&lists)
}

/// Writes the sources of Debian's packages that the system has, for another release.
fn write_sources(release: &str, folder: &Path) -> Result<()> {
    let system = fs::read_to_string("/etc/os-release")?;
    let name = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("the system's release has no name")?;
    let mut sources = vec![PathBuf::from("/etc/apt/sources.list")];
    sources.extend(files::paths_in(Path::new("/etc/apt/sources.list.d"))?);
    let mut written = 0;
    for source in sources.iter().filter(|source| source.is_file()) {
        let text = fs::read_to_string(source)?;
        let is_read =
            source.extension().is_some_and(|extension| extension == "list" || extension == "sources");
        if is_read && text.contains("debian") && text.contains(name) {
            files::write(&folder.join(files::file_name(source)), text.replace(name, release))?;
            written += 1;
        }
    }
    ensure!(written > 0, "the system has no sources of Debian's packages");
    Ok(())
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
