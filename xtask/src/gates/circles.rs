//! Checks that no files use each other in a circle: neither in a crate nor among the modules in Python.
//!
//! Who reads a file of a circle must read all of it. `circles.txt` lists the files that are in circles still: it may only
//! become shorter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::exception_list::{ExceptionList, Upkeep};
use super::source_graph::SourceGraph;

/// Folders of modules in Python that import each other by their names.
const PYTHON: [&str; 7] = [
    "bench",
    "bench/promised",
    "crates/backend-python/python",
    "demo",
    "packaging/wheel/nereid_server",
    "tests/chaos",
    "tests/clients",
];

/// Violations of the rule, one line for each file. `graphs` are those of all products.
///
/// # Errors
/// A source or the list cannot be read, or the list not be written.
pub(super) fn broken(root: &Path, graphs: &[SourceGraph], upkeep: Upkeep) -> Result<Vec<String>> {
    let mut circles = Vec::new();
    for graph in graphs {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        circles
            .extend(graph.circles().iter().map(|circle| circle.iter().map(|path| relative(path)).collect()));
    }
    for folder in PYTHON {
        circles.extend(python_circles(root, folder)?);
    }
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

/// The circles of the modules in a folder.
fn python_circles(root: &Path, folder: &str) -> Result<Vec<Vec<String>>> {
    let path = root.join(folder);
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "py") {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            texts.insert(name, fs::read_to_string(&file)?);
        }
    }
    let names: Vec<&String> = texts.keys().collect();
    let number: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let package = Path::new(folder).file_name().unwrap_or_default().to_string_lossy();
    let files = names.iter().map(|name| PathBuf::from(format!("{folder}/{name}.py"))).collect();
    let arrows = texts.iter().map(|(own, text)| {
        let used = imported(text, &package).filter_map(|name| number.get(name).copied());
        used.filter(|used| names[*used] != own).collect()
    });
    let graph = SourceGraph { files, arrows: arrows.collect(), ..SourceGraph::default() };
    let circles = graph.circles();
    Ok(circles.iter().map(|circle| circle.iter().map(|path| path.display().to_string()).collect()).collect())
}

/// The names of modules of the own folder, or of others, that a module in Python imports.
fn imported<'t>(text: &'t str, package: &'t str) -> impl Iterator<Item = &'t str> {
    text.lines().flat_map(move |line| {
        let line = line.trim_start();
        let names: Vec<&str> = match (line.strip_prefix("from "), line.strip_prefix("import ")) {
            (Some(rest), _) => match rest.split_once(" import ") {
                Some((from, names)) if matches!(from, "." | "") || from == package => listed(names),
                Some((from, _)) => {
                    vec![from.trim_start_matches('.').trim_start_matches(package).trim_start_matches('.')]
                }
                None => Vec::new(),
            },
            (None, Some(names)) => listed(names),
            (None, None) => Vec::new(),
        };
        names
    })
}

fn listed(names: &str) -> Vec<&str> {
    let names = names.split(',').filter_map(|name| name.trim_matches([' ', '(', ')']).split(' ').next());
    names.collect()
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

    #[test]
    fn modules_in_python_are_found_in_every_kind_of_import() {
        let text = "import os, first\nfrom second import x\n  from package.third import y\nfrom . import fourth, fifth as f\nfrom .sixth import z\nfrom package import (seventh)\n";
        let names: Vec<&str> = imported(text, "package").collect();
        assert_eq!(names, ["os", "first", "second", "third", "fourth", "fifth", "sixth", "seventh"]);
    }

    #[test]
    fn circles_of_modules_in_python_are_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("x");
        fs::create_dir(&folder).unwrap();
        for (name, text) in
            [("a.py", "import b\n"), ("b.py", "def f():\n    import a\n"), ("c.py", "import a\n")]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(python_circles(root.path(), "x").unwrap(), [circle(&["x/a.py", "x/b.py"])]);
    }
}
