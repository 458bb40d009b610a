//! Checks that no files use each other in a circle: neither in a crate nor among the modules in Python.
//!
//! Who reads a file of a circle must read all of it. `circles.txt` lists the files that are in circles still: it may only
//! become shorter.

use std::path::Path;

use anyhow::Result;

use super::exception_list::{ExceptionList, Upkeep};
use super::source_graph::SourceGraph;

/// Violations of the rule, one line for each file. `graphs` are those of all products, and of the modules in Python.
///
/// # Errors
/// The list cannot be read or written.
pub(super) fn broken<'g>(
    root: &Path,
    graphs: impl Iterator<Item = &'g SourceGraph>,
    upkeep: Upkeep,
) -> Result<Vec<String>> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let circles: Vec<Vec<String>> = graphs
        .flat_map(SourceGraph::circles)
        .map(|circle| circle.into_iter().map(relative).collect())
        .collect();
    compare(&circles, &ExceptionList::read(root, "circles.txt", upkeep)?)
}

/// What differs from the list.
fn compare(circles: &[Vec<String>], list: &ExceptionList) -> Result<Vec<String>> {
    let new = circles.iter().filter_map(|circle| {
        let file = circle.iter().find(|file| !list.has(file))?;
        Some(format!("{file} is in a circle of files that use each other: {}", circle.join(", ")))
    });
    let mut broken: Vec<String> = new.collect();
    broken.extend(list.unneeded(&circles.iter().flatten().map(String::as_str).collect())?);
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    #[test]
    fn a_new_circle_and_an_ended_one_are_named() {
        let list = ExceptionList::of("a\nb\n");
        assert!(compare(&[circle(&["a", "b"])], &list).unwrap().is_empty());
        assert_eq!(
            compare(&[circle(&["a", "b", "c"])], &list).unwrap(),
            ["c is in a circle of files that use each other: a, b, c"]
        );
        assert_eq!(compare(&[], &list).unwrap().len(), 2);
    }
}
