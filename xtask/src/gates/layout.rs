//! Checks where modules lie: a file is a page, which declares, documents and re-exports, or it is one thing, which uses
//! nothing of the files below it. `foo.rs` is beside `foo/`, and the root of a library only declares.
//!
//! `layout.txt` lists the files that break a rule today.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::exception_list::{ExceptionList, Upkeep};
use super::source_graph::SourceGraph;

/// Violations of the rules, one line each.
///
/// # Errors
/// The list cannot be read or written.
pub(super) fn broken(root: &Path, graphs: &[SourceGraph], upkeep: Upkeep) -> Result<Vec<String>> {
    let mut found = BTreeMap::new();
    for graph in graphs {
        found.extend(of_target(root, graph));
    }
    ExceptionList::read(root, "layout.txt", upkeep)?.compare(&found)
}

/// The entry of each violation in a target, and its message.
fn of_target(root: &Path, graph: &SourceGraph) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (file, path) in graph.files.iter().enumerate() {
        let path = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if path.ends_with("/mod.rs") {
            let message =
                format!("{path}: name it {}.rs, beside its folder", path.trim_end_matches("/mod.rs"));
            found.insert(path.clone(), message);
        }
        // The same for `foo.rs` and `foo/mod.rs`.
        let module = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let defines = graph.defines[file];
        if path.ends_with("/lib.rs") {
            if defines {
                let message = format!("{path}: the root of a library only declares modules and re-exports");
                found.insert(format!("{module} defines"), message);
            }
            continue;
        }
        // The root of a program is its page, with `main`.
        let is_root = graph.parents[file].is_none();
        let below: Vec<_> = graph.arrows[file].iter().filter(|used| graph.is_below(**used, file)).collect();
        if let Some(used) = below.first().filter(|_| defines && !is_root) {
            let used = graph.files[**used].strip_prefix(root).unwrap_or(&graph.files[**used]);
            let message = format!(
                "{path}: defines something, and uses what lies below it, such as {}: a file is a page or one thing",
                used.display()
            );
            found.insert(format!("{module} defines and uses what is below"), message);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::gates::rust_graph;

    /// The entries for a target with these files.
    fn entries(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let graph = rust_graph::of_target(&folder.path().join("src").join(files[0].0)).unwrap();
        of_target(folder.path(), &graph).into_keys().collect()
    }

    #[test]
    fn a_library_only_declares() {
        assert!(entries(&[("lib.rs", "mod a; pub use a::A;"), ("a.rs", "pub struct A;")]).is_empty());
        assert_eq!(entries(&[("lib.rs", "pub struct A;")]), ["src/lib defines"]);
    }

    #[test]
    fn a_file_is_a_page_or_one_thing() {
        let root = ("main.rs", "mod a; fn main() { a::b::go(); }");
        let below = ("a/b.rs", "pub fn go() { use super::A; }");
        assert!(entries(&[root, ("a.rs", "pub mod b; pub use b::go;"), below]).is_empty());
        assert!(entries(&[root, ("a.rs", "pub mod b; pub struct A;"), below]).is_empty());
        let both = ("a.rs", "pub mod b; pub struct A; pub use b::go;");
        assert_eq!(entries(&[root, both, below]), ["src/a defines and uses what is below"]);
    }

    #[test]
    fn no_file_is_named_mod() {
        let root = ("main.rs", "mod a; fn main() {}");
        assert_eq!(entries(&[root, ("a/mod.rs", "")]), ["src/a/mod.rs"]);
    }
}
