//! What the command takes, and how it makes the packages.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::contents::PackageContents;
use super::{archive, chart, contents, debian_package, image, wheel};
use crate::arguments::Arguments;
use crate::build::Build;
use crate::console::heading;
use crate::{files, workspace};

/// A kind of packages with programs.
struct PackageKind {
    /// As in `--only`.
    name: &'static str,
    /// Makes the package in a folder, and returns its path.
    make: fn(&PackageContents, &Path) -> Result<PathBuf>,
}

const KINDS: [PackageKind; 4] = [
    PackageKind { name: "wheel", make: wheel::make },
    PackageKind { name: "deb", make: debian_package::make },
    PackageKind { name: "tar", make: archive::make },
    PackageKind { name: "image", make: image::make },
];

/// The kind of package without programs, which needs no build.
const CHART: &str = "chart";

/// What `cargo xtask dist` shall make.
pub(crate) struct DistOptions {
    pub(crate) build: Build,
    /// The name of one of [`KINDS`], or [`CHART`]; all without it.
    pub(crate) only: Option<String>,
    /// Where clusters find the image: the chart names it.
    pub(crate) image_repository: Option<String>,
}

impl DistOptions {
    /// All packages, of a build without optimisation.
    pub(crate) fn for_tests() -> DistOptions {
        DistOptions { build: Build::DevWorkspace, only: None, image_repository: None }
    }

    pub(crate) fn parse(mut arguments: Arguments) -> Result<DistOptions> {
        let build = if arguments.flag("--dev") { Build::Dev } else { Build::Dist };
        let only: Option<String> = arguments.value("--only")?;
        let image_repository = arguments.value("--image-repository")?;
        arguments.finish()?;
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name).chain([CHART]).collect();
        if let Some(kind) = only.as_deref().filter(|kind| !names.contains(kind)) {
            bail!("unknown: --only {kind}; there are {}", names.join(", "));
        }
        Ok(DistOptions { build, only, image_repository })
    }
}

/// Makes the packages in `target/dist`, and prints their sizes.
pub(crate) fn run(options: &DistOptions) -> Result<bool> {
    let folder = workspace::target().join("dist");
    files::make_folder(&folder)?;
    let is_wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut made = Vec::new();
    if KINDS.iter().any(|kind| is_wanted(kind.name)) {
        heading("contents");
        let contents = PackageContents::make(options.build, &folder.join("contents"))?;
        for PackageKind { name, make } in KINDS {
            if is_wanted(name) {
                heading(name);
                made.push((name, make(&contents, &folder)?));
            }
        }
    }
    if is_wanted(CHART) {
        heading(CHART);
        made.push((CHART, chart::make(&contents::version()?, options.image_repository.as_deref(), &folder)?));
    }
    heading("packages");
    println!("| package | file | MB |\n|---|---|---:|");
    for (kind, package) in made {
        let name = package.strip_prefix(&folder).unwrap_or(&package);
        println!("| {kind} | {} | {:.1} |", name.display(), files::size(&package)? as f64 / 1e6);
    }
    Ok(true)
}
