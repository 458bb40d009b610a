//! The text format of `config.pbtxt`.
//!
//! Accepts what protobuf's TextFormat accepts for this schema: `#` comments, braces or angle brackets, lists for
//! repeated fields, `,` and `;` after a field, adjacent strings, C escapes and C numbers. It refuses everything else.
//! It reports all misspelt names at once, and the first of the other mistakes. A report contains the position, the
//! reason and, for a misspelt name, the name that was probably meant.

mod lexer;
mod parser;
mod scalar;

use std::fmt;
use std::path::Path;

use lexer::Fault;

use crate::Parsed;

/// Reads a configuration from its text form; an empty source is an empty configuration.
///
/// # Errors
/// The first mistake in the source. Its [`TextError::others`] contains the further ones.
pub fn parse(source: &[u8]) -> Result<Parsed, TextError> {
    match std::str::from_utf8(source) {
        Ok(source) => parser::parse(source).map_err(|faults| TextError::all(source, faults)),
        Err(error) => {
            let fault = Fault::new(error.valid_up_to(), "the file is not valid UTF-8");
            Err(TextError::all(&String::from_utf8_lossy(source), vec![fault]))
        }
    }
}

/// A mistake in a text source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// The character on the line, counted from 1.
    pub column: usize,
    /// Describes the mistake in one line.
    pub message: String,
    /// The line itself, or its part around the mistake if it is very long.
    pub source_line: String,
    /// Further mistakes in the same source, in order. Their own lists are empty.
    pub others: Vec<TextError>,
    /// The position of the mistake in `source_line`, in characters from 0.
    caret: usize,
}

/// The largest number of characters of a source line that a report shows before and after a mistake.
const SHOWN: usize = 100;

impl TextError {
    /// `faults` must not be empty.
    fn all(source: &str, faults: Vec<Fault>) -> Self {
        let mut errors = faults.into_iter().map(|fault| Self::new(source, fault));
        let nothing = || Self::new(source, Fault::new(0, "the file cannot be read"));
        let first = errors.next().unwrap_or_else(nothing);
        Self { others: errors.collect(), ..first }
    }

    fn new(source: &str, fault: Fault) -> Self {
        let before = &source[..fault.at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count();
        let text = source[start..].lines().next().unwrap_or_default();
        let skipped = column.saturating_sub(SHOWN);
        Self {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message: fault.why,
            source_line: text.chars().skip(skipped).take(2 * SHOWN).collect(),
            others: Vec::new(),
            caret: column - skipped,
        }
    }

    /// All mistakes with the name of their file, in the form of a compiler's errors: position and reason, the line, a
    /// caret.
    #[must_use]
    pub fn in_file<'a>(&'a self, path: &'a Path) -> impl fmt::Display + 'a {
        InFile { path, error: self }
    }
}

struct InFile<'a> {
    path: &'a Path,
    error: &'a TextError,
}

impl fmt::Display for InFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{path}:{}", self.error)?;
        self.error.others.iter().try_for_each(|other| write!(f, "\n{path}:{other}"))
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tabs stay tabs, so that the caret has the right position for every tab width.
        let indent: String =
            self.source_line.chars().take(self.caret).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let Self { line, column, message, source_line, .. } = self;
        write!(f, "{line}:{column}: {message}\n  {source_line}\n  {indent}^")
    }
}

impl std::error::Error for TextError {}
