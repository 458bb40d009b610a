//! The text format of `config.pbtxt`.
//!
//! Accepts what protobuf's TextFormat accepts for this schema: `#` comments, braces or angle brackets, lists for
//! repeated fields, `,` and `;` after a field, adjacent strings, C escapes and C numbers. It refuses everything else.
//! It reports all misspelt names, wrong values and repeated fields at once, up to the first place where it cannot tell
//! how the source goes on. A report contains the position, the reason and, for a misspelt name, the name that was
//! probably meant.

mod cursor;
mod encoding;
mod format;
mod lexer;
mod outline;
mod parser;
mod printable;
mod scalar;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use lexer::Fault;
pub use outline::SourceField;
pub use printable::printable;
pub use write::{ConfigLeaf, leaves, write};

use crate::Parsed;

/// Reads a configuration from its text form; an empty source is an empty configuration.
///
/// # Errors
/// The first mistake in the source. Its [`TextError::others`] contains the further ones.
pub fn parse(source: &[u8]) -> Result<Parsed, TextError> {
    let (parsed, error) = parse_what_can_be(source);
    match error {
        None => Ok(parsed),
        Some(error) => Err(error),
    }
}

/// As [`parse`], but returns what could be read of a source with mistakes, too. A misspelt name counts as the name that
/// was probably meant.
pub fn parse_what_can_be(source: &[u8]) -> (Parsed, Option<TextError>) {
    match encoding::decode(source) {
        Ok(source) => {
            let (parsed, faults) = parser::parse(&source);
            (parsed, TextError::all(&source, faults))
        }
        Err((shown, at)) => (Parsed::default(), TextError::all(&shown, vec![encoding::fault(at)])),
    }
}

/// Formats a configuration: its comments, its order and its blank lines stay, and its meaning. Formatting twice changes
/// nothing more.
///
/// # Errors
/// The mistakes of a source that is not a configuration. A source that is not UTF-8 cannot be formatted, even if the other
/// bytes are only in comments.
pub fn format(source: &[u8]) -> Result<String, TextError> {
    parse(source)?;
    let source = str::from_utf8(source).map_err(|error| {
        TextError::new(&String::from_utf8_lossy(source), encoding::fault(error.valid_up_to()))
    })?;
    format::format(source).map_err(|fault| TextError::new(source, fault))
}

/// The fields of a configuration with their places in its source, so that a program can change some of them.
///
/// # Errors
/// The mistakes of a source that is not a configuration.
pub fn outline(source: &str) -> Result<Vec<SourceField<'_>>, TextError> {
    parse(source.as_bytes())?;
    outline::outline(source).map_err(|fault| TextError::new(source, fault))
}

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MistakeKind {
    /// The source breaks off, or contains something where nothing can be.
    Syntax,
    /// A message does not have the field.
    UnknownField,
    /// An enumeration does not have the value.
    UnknownValue,
    /// The value does not have the type of the field.
    WrongValue,
    /// A field is set twice, or together with a field that it excludes.
    Repeated,
}

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
    fn all(source: &str, faults: Vec<Fault>) -> Option<Self> {
        let mut errors = faults.into_iter().map(|fault| Self::new(source, fault));
        let first = errors.next()?;
        Some(Self { others: errors.collect(), ..first })
    }

    /// This mistake and the further ones, in order.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
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
