//! Checks that pages tell the truth about places: each path that a page names exists, and the table of crates in the
//! architecture has the crates of the workspace.
//!
//! A path may be short: `queue/level.rs` for the only file that ends so. A recipe also names files that its readers
//! make. Records of decisions are left out: they say how things were.

use std::collections::BTreeSet;

use serde_json::Value;

/// Pages with paths.
const PAGES: &[&str] =
    &["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "STYLE.md", "docs/"];
/// Their paths are those of their time.
const RECORDS: &str = "docs/adr/";
/// The ends of files in source code.
const SOURCES: &[&str] = &[".rs", ".py", ".toml", ".c", ".h"];
/// The first line of the table of crates in the architecture.
const CRATES: &str = "| crate | is | must not know |";

/// Violations, one line each. `paths`: all files of the repository. `pages`: those in Markdown, with their texts.
/// `packages`: those of `cargo metadata`.
pub(super) fn broken(paths: &[String], pages: &[(String, String)], packages: &[Value]) -> Vec<String> {
    let places = KnownPaths::of(paths);
    let mut broken = Vec::new();
    for (page, text) in pages.iter().filter(|(page, _)| is_looked_at(page)) {
        let made_by_readers = |span: &str| text.contains(&format!(",save={span}\n"));
        let lost = code_spans(text)
            .filter(|span| places.is_path(span) && !places.has(span) && !made_by_readers(span));
        broken.extend(lost.map(|span| format!("{page}: there is no {span}; write where it is now")));
        if text.contains(CRATES) {
            broken.extend(wrong_crates(page, text, packages));
        }
    }
    broken
}

fn is_looked_at(page: &str) -> bool {
    PAGES.iter().any(|start| page.starts_with(start)) && !page.starts_with(RECORDS)
}

/// What lies between backticks, outside of blocks of code.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The files and folders of the repository.
struct KnownPaths<'p> {
    all: BTreeSet<&'p str>,
    /// Where full paths begin: the folders at the top, and those of crates.
    begins: BTreeSet<&'p str>,
}

impl<'p> KnownPaths<'p> {
    fn of(paths: &'p [String]) -> Self {
        let mut all = BTreeSet::new();
        let mut begins = BTreeSet::new();
        for path in paths {
            all.insert(path.as_str());
            all.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
            begins.extend(path.split_once('/').map(|(top, _)| top));
            begins.extend(path.strip_prefix("crates/").and_then(|path| path.split('/').next()));
        }
        Self { all, begins }
    }

    /// Whether a span is meant as a path of the repository.
    fn is_path(&self, span: &str) -> bool {
        let is_plain = !span.starts_with('/') && !span.contains([' ', ':', '<', '>', '|', '$', '=']);
        let names_source = SOURCES.iter().any(|end| span.ends_with(end));
        span.split_once('/')
            .is_some_and(|(first, _)| is_plain && (names_source || self.begins.contains(first)))
    }

    /// Whether a file or folder has this path, or ends with it. `*` at its end stands for any rest.
    fn has(&self, span: &str) -> bool {
        let (begin, is_whole) = match span.strip_suffix('*') {
            Some(begin) => (begin, false),
            None => (span.trim_end_matches('/'), true),
        };
        let within = format!("/{begin}");
        let fits = |path: &&str| match is_whole {
            true => path.ends_with(&within),
            false => path.starts_with(begin) || path.contains(&within),
        };
        self.all.contains(begin) || self.all.iter().any(fits)
    }
}

/// How the table of crates differs from the workspace.
fn wrong_crates(page: &str, text: &str, packages: &[Value]) -> Vec<String> {
    let table = text.split(CRATES).nth(1).unwrap_or_default();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let names = packages.iter().filter_map(|package| package["name"].as_str());
    let real: BTreeSet<&str> = names.map(|name| name.strip_prefix("nereid-").unwrap_or(name)).collect();
    let missing = real.difference(&listed).map(|name| format!("{page}: the table of crates lacks {name}"));
    let gone = listed.difference(&real).map(|name| format!("{page}: there is no crate {name}"));
    missing.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lost(text: &str) -> Vec<String> {
        let paths = ["crates/engine/src/model.rs", "crates/engine/src/model/target.rs", "tests/clients/a.py"];
        let pages = [("docs/page.md".to_owned(), text.to_owned())];
        broken(&paths.map(str::to_owned), &pages, &[])
    }

    #[test]
    fn paths_of_the_repository_must_exist() {
        assert_eq!(
            lost("see `engine/src/mode.rs`"),
            ["docs/page.md: there is no engine/src/mode.rs; write where it is now"]
        );
        assert_eq!(lost("`tests/none/`, `model/none.rs`").len(), 2);
    }

    #[test]
    fn paths_may_be_short_name_folders_and_end_with_a_star() {
        let text =
            "`engine/src/model.rs` `model/target.rs` `crates/engine/` `tests/clients` `engine/src/mod*`";
        assert!(lost(text).is_empty());
    }

    #[test]
    fn a_recipe_names_the_files_that_its_readers_make() {
        assert!(lost("`m/1/model.py`:\n```python,save=m/1/model.py\npass\n```\n").is_empty());
        assert_eq!(lost("`m/2/model.py`:\n```python,save=m/1/model.py\npass\n```\n").len(), 1);
    }

    #[test]
    fn other_spans_are_no_paths() {
        let text = "`GET /v2/x.rs` `application/json` `/etc/x.toml` `engine/<name>.rs`\n```\n`tests/none/a.py`\n```\n";
        assert!(lost(text).is_empty());
    }

    #[test]
    fn the_table_of_crates_has_the_crates_of_the_workspace() {
        let text =
            format!("{CRATES}\n|---|---|---|\n| `engine` | a | b |\n| `old` | a | b |\n\n| `other` |\n");
        let packages = [json!({ "name": "engine" }), json!({ "name": "xtask" })];
        let pages = [("ARCHITECTURE.md".to_owned(), text)];
        assert_eq!(
            broken(&[], &pages, &packages),
            ["ARCHITECTURE.md: the table of crates lacks xtask", "ARCHITECTURE.md: there is no crate old"]
        );
    }
}
