//! The pages and files that a book can show, and their addresses in the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repository_files;

/// The table of contents, which is no page.
pub(super) const TABLE_OF_CONTENTS: &str = "docs/SUMMARY.md";

/// A page in Markdown.
pub(super) struct SourcePage {
    /// From the root of the repository.
    pub(super) path: String,
    pub(super) text: String,
}

/// Everything that is, or could be, in the repository.
pub(super) struct PageSet {
    pages: BTreeMap<String, SourcePage>,
    files: BTreeSet<String>,
}

impl PageSet {
    /// # Errors
    /// `root` is not a repository, or a page cannot be read.
    pub(super) fn read(root: &Path) -> Result<PageSet> {
        let mut set = PageSet { pages: BTreeMap::new(), files: BTreeSet::new() };
        for path in repository_files::paths(root, &[])? {
            if path.ends_with(".md") && path != TABLE_OF_CONTENTS {
                let text =
                    fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
                set.pages.insert(path.clone(), SourcePage { path: path.clone(), text });
            }
            set.files.insert(path);
        }
        Ok(set)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SourcePage> {
        self.pages.values()
    }

    pub(super) fn page(&self, path: &str) -> Option<&SourcePage> {
        self.pages.get(path)
    }

    /// The page or file that a path from the root names. That of a directory is its `README.md`.
    pub(super) fn resolve(&self, path: &str) -> Option<String> {
        let readme = if path.is_empty() { "README.md".to_owned() } else { format!("{path}/README.md") };
        [path.to_owned(), readme].into_iter().find(|path| self.files.contains(path))
    }
}

impl SourcePage {
    /// The text of the first heading, or else the path.
    pub(super) fn title(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(&self.path)
    }
}

/// The address of a page or file, from the root of the book.
pub(super) fn address(path: &str) -> String {
    let inside = match path.strip_prefix("docs/") {
        Some(inside) => inside.to_owned(),
        None if path.contains('/') || !path.ends_with(".md") => format!("source/{path}"),
        None => path.to_owned(),
    };
    let html = match inside.strip_suffix(".md") {
        _ if is_picture(path) => return inside,
        Some(page) => {
            page.strip_suffix("README").map_or_else(|| page.to_owned(), |folder| format!("{folder}index"))
        }
        None => inside,
    };
    format!("{html}.html")
}

/// Whether a browser shows the file as it is.
pub(super) fn is_picture(path: &str) -> bool {
    [".png", ".svg", ".jpg"].iter().any(|ending| path.ends_with(ending))
}

/// The path that `link` means on the page `from`. `None` if it leaves the repository.
pub(super) fn join(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The way from one address of the book to another.
pub(super) fn relative(from: &str, to: &str) -> String {
    format!("{}{to}", "../".repeat(from.matches('/').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_manual_are_at_the_root_of_the_book() {
        assert_eq!(address("docs/batching.md"), "batching.html");
        assert_eq!(address("docs/adr/README.md"), "adr/index.html");
        assert_eq!(address("README.md"), "index.html");
        assert_eq!(address("STYLE.md"), "STYLE.html");
        assert_eq!(address("examples/embed/README.md"), "source/examples/embed/index.html");
        assert_eq!(address("include/nereid.h"), "source/include/nereid.h.html");
        assert_eq!(address("Cargo.toml"), "source/Cargo.toml.html");
        assert_eq!(address("docs/a.svg"), "a.svg");
    }

    #[test]
    fn links_are_read_from_the_place_of_their_page() {
        assert_eq!(join("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(join("docs/adr/a.md", "./b.md").as_deref(), Some("docs/adr/b.md"));
        assert_eq!(join("README.md", "../other"), None);
        assert_eq!(relative("adr/index.html", "book.css"), "../book.css");
    }
}
