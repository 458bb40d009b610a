//! `cargo xtask dist`: packages that install the server without a compiler: a Python wheel, a Debian package, an archive
//! with everything, and a container image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::steps::heading;
use crate::workspace::{self, Build};

mod archive;
mod contents;
mod debian_package;
mod image;
mod licences;
mod sbom;
mod wheel;

use contents::PackageContents;

/// The kinds of packages.
const KINDS: [&str; 4] = ["wheel", "deb", "tar", "image"];

/// What `cargo xtask dist` shall make.
pub(crate) struct DistOptions {
    pub(crate) build: Build,
    /// One of [`KINDS`]; all without it.
    pub(crate) only: Option<String>,
}

impl DistOptions {
    /// All packages, of a build without optimisation.
    pub(crate) fn for_tests() -> DistOptions {
        DistOptions { build: Build::DevWorkspace, only: None }
    }

    pub(crate) fn parse(mut arguments: Arguments) -> Result<DistOptions> {
        let build = if arguments.flag("--dev") { Build::Dev } else { Build::Dist };
        let only: Option<String> = arguments.value("--only")?;
        arguments.finish()?;
        if let Some(kind) = only.as_deref().filter(|kind| !KINDS.contains(kind)) {
            bail!("unknown: --only {kind}; there are {}", KINDS.join(", "));
        }
        Ok(DistOptions { build, only })
    }
}

/// Makes the packages in `target/dist`, and prints their sizes.
pub(crate) fn run(options: &DistOptions) -> Result<bool> {
    let folder = workspace::target().join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    heading("contents");
    let contents = PackageContents::make(options.build, &folder.join("contents"))?;
    let mut made = Vec::new();
    for kind in KINDS {
        if options.only.as_deref().is_some_and(|only| only != kind) {
            continue;
        }
        heading(kind);
        let package = match kind {
            "wheel" => wheel::make(&contents, &folder)?,
            "deb" => debian_package::make(&contents, &folder)?,
            "tar" => archive::make(&contents, &folder)?,
            _ => image::make(&contents, &folder)?,
        };
        made.push((kind, package));
    }
    heading("packages");
    println!("| package | file | MB |\n|---|---|---:|");
    for (kind, package) in made {
        let name = package.strip_prefix(&folder).unwrap_or(&package);
        println!("| {kind} | {} | {:.1} |", name.display(), size(&package)? as f64 / 1e6);
    }
    Ok(true)
}

/// Writes a file and the folders above it.
fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file with its permissions, and makes the folders above it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path without a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// Makes an empty folder.
fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The bytes of all files below a path.
fn size(path: &Path) -> Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let entries: Vec<PathBuf> = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.iter().map(|entry| size(entry)).sum()
}
