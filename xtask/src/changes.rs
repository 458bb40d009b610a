//! Which packages of the workspace have changed since the last commit.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{process, workspace};

/// The names of the changed packages. `None` if a file has changed that any package may depend on.
///
/// # Errors
/// The root is not a repository, or cargo cannot describe it.
pub(crate) fn packages() -> Result<Option<Vec<String>>> {
    let mut status = Command::new("git");
    status.args(["status", "--porcelain", "--untracked-files=all", "--no-renames"]);
    let status = process::output(status.current_dir(workspace::root()))?;
    let root = workspace::root();
    let root = root.to_str().context("the path of the repository is no text")?;
    let mut folders = Vec::new();
    for package in workspace::packages()? {
        folders.push(folder_and_name(root, &package).context("cargo does not say where a package is")?);
    }
    Ok(of_status(&status, &folders))
}

/// The folder of a package, relative to the root, and its name.
fn folder_and_name(root: &str, package: &Value) -> Option<(String, String)> {
    let manifest = package["manifest_path"].as_str()?.strip_prefix(root)?.trim_start_matches('/');
    Some((manifest.strip_suffix("Cargo.toml")?.to_owned(), package["name"].as_str()?.to_owned()))
}

/// `folders` are the folders of the packages, each with a slash at its end, and their names.
fn of_status(status: &str, folders: &[(String, String)]) -> Option<Vec<String>> {
    let mut changed = BTreeSet::new();
    // A line has two letters, a blank, and a path.
    for path in status.lines().filter_map(|line| line.get(3..)) {
        let package = folders.iter().find(|(folder, _)| path.starts_with(folder.as_str()));
        match package {
            Some((_, name)) => {
                changed.insert(name.clone());
            }
            // Documents are part of some packages, but none of them is code.
            None if path.ends_with(".md") || path.starts_with("tests/") => {}
            None => return None,
        }
    }
    Some(changed.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(status: &str) -> Option<Vec<String>> {
        let folders = [("crates/a/", "nereid-a"), ("crates/ab/", "nereid-ab"), ("xtask/", "xtask")];
        of_status(status, &folders.map(|(folder, name)| (folder.to_owned(), name.to_owned())))
    }

    #[test]
    fn a_file_belongs_to_the_package_of_its_folder() {
        let status = " M crates/ab/src/lib.rs\n?? crates/ab/tests/new.rs\nA  xtask/src/a.rs\n M docs/a.md\n";
        assert_eq!(changed(status).unwrap(), ["nereid-ab", "xtask"]);
        assert_eq!(changed("").unwrap(), [""; 0]);
    }

    #[test]
    fn a_file_of_no_package_concerns_all() {
        assert_eq!(changed(" M crates/a/src/lib.rs\n M Cargo.lock\n"), None);
    }

    #[test]
    fn each_package_of_the_workspace_has_a_folder() {
        let packages = packages().unwrap();
        assert!(packages.is_none_or(|names| names.iter().all(|name| !name.is_empty())));
    }
}
