//! The licences of what a build contains, which each package must bring.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sbom::BuiltCrate;
use crate::files::{file_name, paths_in};

/// How files with licences begin, in upper case.
const BEGINNINGS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// All licences of the parts. A text that several parts have stands there once.
pub(super) fn text(parts: &[BuiltCrate]) -> Result<String> {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut names = String::new();
    for part in parts {
        let licence = part.licence.as_deref().unwrap_or("see below");
        writeln!(names, "{} {}: {licence}", part.name, part.version)?;
        for text in files(&part.folder)? {
            owners.entry(text).or_default().push(format!("{} {}", part.name, part.version));
        }
    }
    let mut all = format!(
        "Nereid contains these crates, and the standard library of Rust (MIT OR Apache-2.0):\n\n{names}"
    );
    for (text, owners) in owners {
        write!(all, "\n{}\n{}\n\n{}\n", "=".repeat(100), owners.join(", "), text.trim_end())?;
    }
    Ok(all)
}

/// The texts of the files with licences in a folder.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut paths = paths_in(folder)?;
    paths.retain(|path| {
        let name = file_name(path).to_string_lossy().to_uppercase();
        path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    });
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    paths.iter().map(|path| Ok(String::from_utf8_lossy(&read(path)?).into_owned())).collect()
}
