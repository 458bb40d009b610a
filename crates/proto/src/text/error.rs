//! Mistakes in the text form of a configuration, with their lines.
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use super::fault::{MistakeKind, TextFault};
use super::printable::printable;

/// A mistake in a text source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// The character on the line, counted from 1.
    pub column: usize,
    /// The kind of the mistake.
    pub kind: MistakeKind,
    /// Describes the mistake in one line.
    pub message: String,
    /// The name that was probably meant.
    pub suggestion: Option<Box<str>>,
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
    /// The mistakes as one error; `None` if there are none.
    pub(super) fn all(source: &str, faults: Vec<TextFault>) -> Option<Self> {
        let mut errors = faults.into_iter().map(|fault| Self::new(source, fault));
        let first = errors.next()?;
        Some(Self { others: errors.collect(), ..first })
    }

    /// This mistake and the further ones, in order.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    pub(super) fn new(source: &str, fault: TextFault) -> Self {
        let before = &source[..fault.at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count();
        let text = source[start..].lines().next().unwrap_or_default();
        let skipped = column.saturating_sub(SHOWN);
        Self {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            kind: fault.kind,
            message: fault.why,
            suggestion: fault.suggestion.map(String::into_boxed_str),
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
        let path = self.path.display().to_string();
        let path = printable(&path);
        write!(f, "{path}:{}", self.error)?;
        self.error.others.iter().try_for_each(|other| write!(f, "\n{path}:{other}"))
    }
}

/// A line of a source as a terminal may show it, and the indent of a caret below the character at `position`.
pub fn marked_line(line: &str, position: usize) -> (Cow<'_, str>, String) {
    let end = line.char_indices().nth(position).map_or(line.len(), |(at, _)| at);
    // Tabs stay tabs, so that the caret has the right position for every tab width.
    let indent = printable(&line[..end]).chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    (printable(line), indent)
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, source_line, .. } = self;
        let (source_line, indent) = marked_line(source_line, self.caret);
        write!(f, "{line}:{column}: {}\n  {source_line}\n  {indent}^", printable(message))
    }
}

impl std::error::Error for TextError {}
