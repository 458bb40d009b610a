//! The text files that are, or could be, in the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The paths that match one of `patterns`, or all paths, relative to `root`.
///
/// # Errors
/// `root` is not a repository.
pub(crate) fn paths(root: &Path, patterns: &[&str]) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).args(patterns).current_dir(root);
    let paths = process::output(&mut list)?;
    // A file may be listed, but deleted and not yet committed.
    Ok(paths.lines().filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
}

/// The paths that match one of `patterns`, with the texts of the files.
///
/// # Errors
/// `root` is not a repository, or a file cannot be read.
pub(crate) fn texts(root: &Path, patterns: &[&str]) -> Result<Vec<(String, String)>> {
    let read = |path: String| {
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        Ok((path, text))
    };
    paths(root, patterns)?.into_iter().map(read).collect()
}
