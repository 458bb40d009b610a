//! Tables of text with borders. The server logs its models and options in them at startup.
//!
//! ```text
//! +--------+---------+--------+
//! | Model  | Version | Status |
//! +--------+---------+--------+
//! | simple | 1       | READY  |
//! +--------+---------+--------+
//! ```

use std::fmt;

/// How many characters a line of a table may have: as many as a terminal shows. Words stay whole, and so do all columns
/// but the last.
const MOST_WIDTH: usize = 100;

/// The last column may always have so many characters.
const LEAST_LAST_WIDTH: usize = 40;

/// Rows under headings. A cell may have several lines, which stand below each other. Long lines of the last column go
/// on in the next line. The display has no last newline.
#[derive(Debug, Clone)]
pub struct TextTable<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    /// A table without rows.
    pub fn new(headings: [&str; COLUMNS]) -> Self {
        Self { rows: vec![headings.map(str::to_owned)] }
    }

    /// Adds a row at the bottom.
    pub fn push<Cell: Into<String>>(&mut self, row: [Cell; COLUMNS]) {
        self.rows.push(row.map(Into::into));
    }

    /// The rows, without the headings.
    pub fn rows(&self) -> impl Iterator<Item = &[String; COLUMNS]> {
        self.rows.iter().skip(1)
    }

    /// The lines of each cell.
    fn lines(&self) -> Vec<[Vec<&str>; COLUMNS]> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| std::array::from_fn(|column| row[column].split('\n').collect::<Vec<_>>()))
            .collect();
        let Some(last) = COLUMNS.checked_sub(1) else { return rows };
        let others: usize = widths(&rows)[..last].iter().map(|width| width + BORDER).sum();
        let most = MOST_WIDTH.saturating_sub(others + BORDER + 1).max(LEAST_LAST_WIDTH);
        for row in &mut rows {
            row[last] = row[last].iter().copied().flat_map(|line| folded(line, most)).collect();
        }
        rows
    }
}

/// The characters of a column beside its text.
const BORDER: usize = "|  ".len();

/// The number of characters of the widest line of each column.
fn widths<const COLUMNS: usize>(rows: &[[Vec<&str>; COLUMNS]]) -> [usize; COLUMNS] {
    let width = |line: &&str| line.chars().count();
    std::array::from_fn(|column| rows.iter().flat_map(|row| &row[column]).map(width).max().unwrap_or(0))
}

/// The pieces of a line that have at most so many characters, divided at blanks. The first one keeps its indent.
fn folded(line: &str, most: usize) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), line.trim_end());
    while rest.chars().count() > most {
        let indent = rest.len() - rest.trim_start().len();
        let fits = rest.char_indices().nth(most).map_or(rest.len(), |(at, _)| at);
        // A blank at the end of what fits divides it. A word that is too long ends at the next one.
        let blank = rest[indent..].match_indices(' ').map(|(at, _)| at + indent);
        let Some(at) = blank.clone().rfind(|at| *at <= fits).or_else(|| blank.min()) else { break };
        pieces.push(&rest[..at]);
        rest = rest[at..].trim_start();
    }
    pieces.push(rest);
    pieces
}

impl<const COLUMNS: usize> fmt::Display for TextTable<COLUMNS> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.lines();
        let widths = widths(&rows);
        let border: String = widths
            .iter()
            .map(|width| format!("+{}", "-".repeat(width + 2)))
            .chain(["+".to_owned()])
            .collect();
        writeln!(out, "{border}")?;
        for (index, row) in rows.iter().enumerate() {
            let height = row.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                for (cell, width) in row.iter().zip(widths) {
                    write!(out, "| {:width$} ", cell.get(line).unwrap_or(&""))?;
                }
                writeln!(out, "|")?;
            }
            if index == 0 {
                writeln!(out, "{border}")?;
            }
        }
        write!(out, "{border}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(["Backend", "Path", "Config"]);
        table.push(["onnxruntime", "/b", "{}"]);
        assert_eq!(
            table.to_string(),
            "+-------------+------+--------+\n\
             | Backend     | Path | Config |\n\
             +-------------+------+--------+\n\
             | onnxruntime | /b   | {}     |\n\
             +-------------+------+--------+"
        );
    }

    #[test]
    fn the_lines_of_a_cell_stay_below_each_other() {
        let mut table = TextTable::new(["Model", "Version", "Status"]);
        table.push(["broken", "1", "UNAVAILABLE: Internal: no\nsuch file"]);
        table.push(["simple", "1", "READY"]);
        assert_eq!(
            table.to_string(),
            "+--------+---------+---------------------------+\n\
             | Model  | Version | Status                    |\n\
             +--------+---------+---------------------------+\n\
             | broken | 1       | UNAVAILABLE: Internal: no |\n\
             |        |         | such file                 |\n\
             | simple | 1       | READY                     |\n\
             +--------+---------+---------------------------+"
        );
    }

    #[test]
    fn long_lines_of_the_last_column_are_folded_at_blanks() {
        let mut table = TextTable::new(["Option", "Value"]);
        table.push(["extensions", "statistics trace logging ".repeat(8).trim_end()]);
        table.push(["path", &format!("/{} /models", "a".repeat(120))]);
        let text = table.to_string();
        let lines: Vec<_> = text.lines().map(|line| line.trim_end_matches([' ', '|'])).collect();
        let piece = "statistics trace logging statistics trace logging statistics trace logging";
        assert_eq!(lines[3], format!("| extensions | {piece}"));
        assert_eq!(lines[4], format!("|            | {piece}"));
        let path = lines.iter().position(|line| line.starts_with("| path")).unwrap();
        assert_eq!(lines[path], format!("| path       | /{}", "a".repeat(120)));
        assert_eq!(lines[path + 1], "|            | /models");
        assert_eq!(lines.len(), 9, "{text}");
    }

    #[test]
    fn a_piece_of_a_line_keeps_its_indent_and_its_characters() {
        for (line, pieces) in [
            ("  12345 7890", vec!["  12345", "7890"]),
            ("", vec![""]),
            ("1234567 90", vec!["1234567", "90"]),
            ("ääää ää äää", vec!["ääää ää", "äää"]),
            ("123456789 ", vec!["123456789"]),
            ("a     b c d", vec!["a     b", "c d"]),
        ] {
            assert_eq!(folded(line, 7), pieces, "{line:?}");
        }
    }

    #[test]
    fn a_table_without_rows_shows_its_headings() {
        let table = TextTable::new(["Option", "Value"]);
        assert_eq!(table.rows().count(), 0);
        assert_eq!(
            table.to_string(),
            "+--------+-------+\n| Option | Value |\n+--------+-------+\n+--------+-------+"
        );
    }
}
