//! Checks `tests/differential/explanations.toml`: each difference from Triton that is explained there has its row in
//! `docs/records/differences.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

const EXPLANATIONS: &str = "tests/differential/explanations.toml";
const DIFFERENCES: &str = "docs/records/differences.md";

/// The file. `tests/differential` reads the patterns.
#[derive(Deserialize)]
struct Explanations {
    row: Vec<ExplainedRow>,
}

/// A row of the page: the heading above its table, and its first cell.
#[derive(Deserialize)]
struct ExplainedRow {
    section: String,
    what: String,
}

/// Violations, one line each.
///
/// # Errors
/// A file cannot be read.
pub(super) fn broken(root: &Path) -> Result<Vec<String>> {
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let explanations = toml::from_str(&read(EXPLANATIONS)?).with_context(|| format!("in {EXPLANATIONS}"))?;
    Ok(missing(&explanations, &read(DIFFERENCES)?))
}

fn missing(explanations: &Explanations, page: &str) -> Vec<String> {
    let rows = rows_of(page);
    let lost = explanations.row.iter().filter(|row| !rows.contains(&(&*row.section, &*row.what)));
    lost.map(|row| {
        format!("{EXPLANATIONS}: {DIFFERENCES} has no row '{}' in the section '{}'", row.what, row.section)
    })
    .collect()
}

/// The rows of all tables: the heading above, and the first cell.
fn rows_of(page: &str) -> BTreeSet<(&str, &str)> {
    let mut section = "";
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        } else if let Some(cell) = line.strip_prefix("| ").and_then(|row| row.split(" | ").next()) {
            rows.insert((section, cell));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_explanation_has_its_row() {
        let page =
            "## HTTP\n\n| What | Triton |\n|---|---|\n| HEAD requests | a |\n\n## gRPC\n\n| a `b` | c |\n";
        let explained = |section: &str, what: &str| {
            let row = ExplainedRow { section: section.to_owned(), what: what.to_owned() };
            missing(&Explanations { row: vec![row] }, page)
        };
        assert!(explained("HTTP", "HEAD requests").is_empty());
        assert!(explained("gRPC", "a `b`").is_empty());
        let lost = format!("{EXPLANATIONS}: {DIFFERENCES} has no row 'HEAD requests' in the section 'gRPC'");
        assert_eq!(explained("gRPC", "HEAD requests"), [lost]);
    }
}
