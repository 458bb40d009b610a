//! Checks that each file in Rust is compiled: a module declares it, or it is the root of a library or a program.

use std::collections::BTreeMap;
use std::path::Path;

/// Files with these names are roots.
const ROOTS: [&str; 3] = ["lib", "main", "build"];

/// Each file in these folders is a root.
const FOLDERS_OF_ROOTS: [&str; 5] = ["bin", "tests", "examples", "benches", "fuzz_targets"];

/// Violations, one line each. `sources`: all files in Rust, by their paths.
pub(super) fn broken(sources: &[(String, String)]) -> Vec<String> {
    let texts: BTreeMap<&Path, &str> =
        sources.iter().map(|(path, text)| (Path::new(path.as_str()), text.as_str())).collect();
    let named: Vec<&str> = texts.values().flat_map(|text| paths_of_modules(text)).collect();
    let is_lost = |path: &&Path| {
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { return false };
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_root = ROOTS.contains(&stem)
            || folder.file_name().is_some_and(|name| FOLDERS_OF_ROOTS.iter().any(|root| name == *root));
        let above = folder.with_extension("rs");
        let parents = ["lib.rs", "main.rs", "mod.rs"].map(|name| folder.join(name));
        let is_declared = parents
            .iter()
            .chain([&above])
            .filter_map(|parent| texts.get(parent.as_path()))
            .any(|text| declares(text, stem));
        !is_root && !is_declared && !named.iter().any(|named| path.ends_with(named))
    };
    let lost = texts.keys().copied().filter(is_lost);
    lost.map(|path| format!("{}: no module declares this file: declare it, or remove it", path.display()))
        .collect()
}

/// Whether a text has `mod name;`.
fn declares(text: &str, name: &str) -> bool {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        let declared = line.trim_end().strip_suffix(';').and_then(|line| line.strip_suffix(name));
        declared.is_some_and(|before| before == "mod " || before.ends_with(" mod "))
    })
}

/// The paths that attributes of modules name, without what leads upwards.
fn paths_of_modules(text: &str) -> impl Iterator<Item = &str> {
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    named.map(|path| path.trim_start_matches("../"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        broken(&files).into_iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_file_that_no_module_declares_is_named() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\n#[path = \"../shared/c.rs\"]\nmod d;\nmod inline {}\n"),
            ("crates/a/src/b.rs", "    pub(crate) mod part;\n// mod lost;\n"),
            ("crates/a/src/b/part.rs", ""),
            ("crates/a/src/b/lost.rs", ""),
            ("crates/a/src/inline.rs", ""),
            ("crates/a/shared/c.rs", ""),
            ("crates/a/src/bin/program.rs", ""),
            ("crates/a/tests/whole.rs", "mod support;"),
            ("crates/a/tests/whole/support.rs", ""),
            ("crates/a/tests/whole/other.rs", ""),
            ("xtask/src/main.rs", "mod gates;"),
            ("xtask/src/gates.rs", ""),
        ];
        assert_eq!(
            lost(&files),
            ["crates/a/src/b/lost.rs", "crates/a/src/inline.rs", "crates/a/tests/whole/other.rs"]
        );
    }
}
