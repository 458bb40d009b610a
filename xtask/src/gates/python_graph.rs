//! Which module in Python uses which.
//!
//! An `import`, wherever it stands in a file, is an arrow to the file of the module that it names: beside
//! that file, or in a folder where a program of this repository lets Python look.

use std::collections::BTreeMap;

use super::source_graph::SourceGraph;

/// Folders where Python looks for modules and packages, beside the folder of the file that imports them.
const PLACES: [&str; 6] =
    ["bench", "crates/backend-python/python", "demo", "packaging/wheel", "tests", "tests/clients"];

/// The graph of these modules: their paths in the repository, and their texts.
pub(super) fn of_modules(modules: &[(String, String)]) -> SourceGraph {
    let numbers: BTreeMap<&str, usize> =
        modules.iter().enumerate().map(|(number, (path, _))| (path.as_str(), number)).collect();
    let arrows = modules.iter().map(|(path, text)| {
        let used = imported(text).into_iter().filter_map(|name| find(&numbers, path, &name));
        used.filter(|used| modules[*used].0 != *path).collect()
    });
    let files = modules.iter().map(|(path, _)| path.into()).collect();
    SourceGraph { files, arrows: arrows.collect(), ..SourceGraph::default() }
}

/// The number of the module that a name means in a file. `from a import b` means the module `a.b`, or something in `a`.
fn find(numbers: &BTreeMap<&str, usize>, file: &str, name: &str) -> Option<usize> {
    let parent = |path: &str| path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned());
    let own = parent(file);
    let absolute = name.trim_start_matches('.');
    let places: Vec<String> = match name.len() - absolute.len() {
        0 => std::iter::once(own).chain(PLACES.map(str::to_owned)).collect(),
        // Each further dot means the folder above.
        dots => vec![(1..dots).fold(own, |folder, _| parent(&folder))],
    };
    let parts: Vec<&str> = absolute.split('.').collect();
    places.iter().find_map(|place| {
        (1..=parts.len()).rev().find_map(|count| {
            let path = format!("{place}/{}", parts[..count].join("/"));
            let files = [format!("{path}.py"), format!("{path}/__init__.py")];
            files.iter().find_map(|file| numbers.get(file.trim_start_matches('/')).copied())
        })
    })
}

/// The full names of what a file imports.
fn imported(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    while let Some(line) = lines.next() {
        let mut statement = line.to_owned();
        if line.starts_with("from ") && line.contains('(') {
            // The names may stand on several lines.
            while !statement.contains(')') {
                let Some(next) = lines.next() else { break };
                statement.push_str(next);
            }
        }
        if let Some(names) = statement.strip_prefix("import ") {
            found.extend(listed(names).map(str::to_owned));
        } else if let Some((module, names)) =
            statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        {
            let dot = if module.ends_with('.') { "" } else { "." };
            found.extend(listed(names).map(|name| format!("{module}{dot}{name}")));
        }
    }
    found
}

/// The names of a list, without those that they get in the file.
fn listed(names: &str) -> impl Iterator<Item = &str> {
    let names = names.split(',').map(|name| name.trim_matches([' ', '(', ')']));
    names.filter_map(|name| name.split(' ').next()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows between these modules, as paths.
    fn arrows(modules: &[(&str, &str)]) -> Vec<(String, String)> {
        let modules: Vec<_> =
            modules.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let graph = of_modules(&modules);
        let path = |number: usize| graph.files[number].display().to_string();
        let arrows = graph.arrows.iter().enumerate();
        arrows
            .flat_map(|(from, to)| to.iter().map(move |to| (from, *to)))
            .map(|(a, b)| (path(a), path(b)))
            .collect()
    }

    #[test]
    fn modules_in_python_are_found_in_every_kind_of_import() {
        let text = "import os, first  # second\nfrom third import x\n  from package.fourth import y\n\
                    from . import fifth, sixth as s\nfrom .seventh import z\nfrom . import (\n    eighth,\n)\n";
        let names =
            ["os", "first", "third.x", "package.fourth.y", ".fifth", ".sixth", ".seventh.z", ".eighth"];
        assert_eq!(imported(text), names);
    }

    #[test]
    fn a_module_lies_beside_its_user_or_where_python_looks() {
        let modules = [
            ("bench/a.py", "from promised import b\nfrom serving import start\nimport json"),
            ("bench/promised/__init__.py", ""),
            ("bench/promised/b.py", "from ..a import f\nfrom . import other"),
            ("tests/clients/serving.py", "import a"),
        ];
        let arrow = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let expected = [
            arrow("bench/a.py", "bench/promised/b.py"),
            arrow("bench/a.py", "tests/clients/serving.py"),
            arrow("bench/promised/b.py", "bench/a.py"),
            arrow("tests/clients/serving.py", "bench/a.py"),
        ];
        assert_eq!(arrows(&modules), expected);
    }

    #[test]
    fn circles_of_modules_in_python_are_found() {
        let modules =
            [("x/a.py", "import b\n"), ("x/b.py", "def f():\n    import a\n"), ("x/c.py", "import a\n")];
        let modules = modules.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let graph = of_modules(&modules);
        assert_eq!(graph.circles(), [["x/a.py", "x/b.py"].map(std::path::Path::new)]);
    }
}
