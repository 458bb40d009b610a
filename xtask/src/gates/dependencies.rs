//! Finds dependencies that nothing uses: of a package, and of the workspace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::repository_files;

/// Dependencies that no source of their package names, each with its reason.
const UNNAMED: &[(&str, &str, &str)] = &[
    ("proto", "prost", "the generated types name it"),
    ("testing", "regex-syntax", "so that builds of one package have the features of the whole workspace"),
];

/// Unused dependencies, one line each. `packages` are those of `cargo metadata`.
///
/// # Errors
/// A source or a manifest cannot be read.
pub(crate) fn broken(root: &Path, packages: &[Value]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for package in packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let sources = sources_in(folder)?;
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = short(dependency);
            let is_excepted =
                UNNAMED.iter().any(|(package, dependency, _)| (*package, *dependency) == (name, used));
            if !is_excepted && !names(&sources, &used.replace('-', "_")) {
                broken.push(format!("{name} depends on {used}, and does not use it"));
            }
        }
    }
    let manifest = root.join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let used: Vec<_> = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().into_iter().flatten())
        .collect();
    let unused = of_workspace(&text).filter(|name| !used.iter().any(|dependency| short(dependency) == *name));
    broken.extend(unused.map(|name| format!("no package uses the dependency {name} of the workspace")));
    Ok(broken)
}

/// The name by which sources know a dependency.
fn short(dependency: &Value) -> &str {
    dependency["rename"].as_str().or_else(|| dependency["name"].as_str()).unwrap_or_default()
}

/// The names in the table of dependencies of the workspace.
fn of_workspace(manifest: &str) -> impl Iterator<Item = &str> {
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let table = table.split("\n[").next().unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.contains('#'))
}

/// All sources of a package, one after the other.
fn sources_in(folder: &Path) -> Result<String> {
    Ok(repository_files::texts(folder, &["*.rs"])?.into_iter().map(|(_, text)| text).collect())
}

/// Whether a source has this word.
fn names(sources: &str, word: &str) -> bool {
    sources.match_indices(word).any(|(at, _)| {
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let behind = &sources[at + word.len()..];
        !sources[..at].ends_with(is_part) && !behind.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_used_where_its_name_is_a_word() {
        assert!(names("use futures_util::stream;", "futures_util"));
        assert!(!names("use hyper_util::rt;", "hyper") && !names("fn myhyper() {}", "hyper"));
        assert!(names("hyper_util, hyper", "hyper"));
    }

    #[test]
    fn the_names_of_the_workspace_end_with_its_table() {
        let manifest = "[a]\nx = 1\n[workspace.dependencies]\n# b = 1\nlog = \"0.4\" # c = 2\nhttp-body = { a = 1 }\n\n\
                        [profile.dev]\ndebug = 1\n";
        assert_eq!(of_workspace(manifest).collect::<Vec<_>>(), ["log", "http-body"]);
    }
}
