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

/// Rows under headings. A cell may have several lines, which stand below each other. The display has no last newline.
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

    /// The number of characters of the widest line of each column.
    fn widths(&self) -> [usize; COLUMNS] {
        let line_width = |line: &str| line.chars().count();
        std::array::from_fn(|column| {
            self.rows.iter().flat_map(|row| row[column].split('\n')).map(line_width).max().unwrap_or(0)
        })
    }
}

impl<const COLUMNS: usize> fmt::Display for TextTable<COLUMNS> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let border: String = widths
            .iter()
            .map(|width| format!("+{}", "-".repeat(width + 2)))
            .chain(["+".to_owned()])
            .collect();
        writeln!(out, "{border}")?;
        for (index, row) in self.rows.iter().enumerate() {
            let height = row.iter().map(|cell| cell.split('\n').count()).max().unwrap_or(0);
            for line in 0..height {
                for (cell, width) in row.iter().zip(widths) {
                    write!(out, "| {:width$} ", cell.split('\n').nth(line).unwrap_or(""))?;
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
    fn a_table_without_rows_shows_its_headings() {
        let table = TextTable::new(["Option", "Value"]);
        assert_eq!(table.rows().count(), 0);
        assert_eq!(
            table.to_string(),
            "+--------+-------+\n| Option | Value |\n+--------+-------+\n+--------+-------+"
        );
    }
}
