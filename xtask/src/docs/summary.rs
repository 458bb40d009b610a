//! The table of contents: `docs/SUMMARY.md`, in the form that mdBook reads.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::pages::{self, PageSet, TABLE_OF_CONTENTS as PATH};
use crate::workspace;

/// A heading of the table with its pages.
pub(super) struct BookPart {
    pub(super) title: String,
    pub(super) chapters: Vec<BookChapter>,
}

/// A line of the table.
pub(super) struct BookChapter {
    pub(super) title: String,
    /// The path of the page.
    pub(super) path: String,
}

/// Reads the table. Pages of `docs` that it does not list follow in a part of their own.
///
/// # Errors
/// There is no table, a line of it is not understood, or it lists a page that does not exist, or one twice.
pub(super) fn read(pages: &PageSet) -> Result<Vec<BookPart>> {
    let text = std::fs::read_to_string(workspace::root().join(PATH))?;
    let mut parts = parse(&text)?;
    let mut listed = BTreeSet::new();
    for chapter in parts.iter().flat_map(|part| &part.chapters) {
        ensure!(pages.page(&chapter.path).is_some(), "{PATH} lists {}, which does not exist", chapter.path);
        ensure!(listed.insert(chapter.path.clone()), "{PATH} lists {} twice", chapter.path);
    }
    let others = pages.all().filter(|page| is_in_docs(&page.path) && !listed.contains(&page.path));
    let chapters: Vec<_> =
        others.map(|page| BookChapter { title: page.title().to_owned(), path: page.path.clone() }).collect();
    if !chapters.is_empty() {
        parts.push(BookPart { title: "More pages".into(), chapters });
    }
    Ok(parts)
}

/// Whether the page is in `docs` itself. The list of decisions has links to all of them.
fn is_in_docs(path: &str) -> bool {
    path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'))
}

fn parse(text: &str) -> Result<Vec<BookPart>> {
    let mut parts: Vec<BookPart> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && *line != "# Summary") {
        if let Some(title) = line.strip_prefix("# ") {
            parts.push(BookPart { title: title.to_owned(), chapters: Vec::new() });
            continue;
        }
        let link = line.strip_prefix("- [").and_then(|rest| rest.strip_suffix(')')?.split_once("]("));
        let path = link.and_then(|(_, path)| pages::join(PATH, path));
        let (Some((title, _)), Some(path), Some(part)) = (link, path, parts.last_mut()) else {
            anyhow::bail!("{PATH}: not understood: {line}");
        };
        part.chapters.push(BookChapter { title: title.to_owned(), path });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_parts_and_chapters() {
        let parts = parse("# Summary\n\n# Start\n\n- [Read me](../README.md)\n- [A](a.md)\n").unwrap();
        assert_eq!((parts.len(), parts[0].title.as_str()), (1, "Start"));
        let chapters: Vec<_> =
            parts[0].chapters.iter().map(|one| (one.title.as_str(), one.path.as_str())).collect();
        assert_eq!(chapters, [("Read me", "README.md"), ("A", "docs/a.md")]);
    }

    #[test]
    fn other_lines_are_refused() {
        assert!(parse("# A\n\nwords\n").is_err());
        assert!(parse("- [a](b.md)\n").is_err());
    }
}
