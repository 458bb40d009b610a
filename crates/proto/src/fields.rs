//! The fields that a source sets, with their positions.

use std::collections::BTreeMap;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    /// The line, counted from 1.
    pub line: usize,
    /// The character on the line, counted from 1.
    pub column: usize,
}

/// The fields that a source sets, by path.
///
/// A path consists of field names and positions: `max_batch_size`, `input[0].dims`, `dynamic_batching`. The position
/// of a map entry is its position in the source; an entry of a text also has the path `parameters.<key>`. A message or
/// list also has an entry under its own path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    positions: BTreeMap<String, Option<TextPosition>>,
}

impl Fields {
    /// Whether the source sets the field, even to its default.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.positions.contains_key(path)
    }

    /// The line, counted from 1, where the source first sets the field; `None` for an absent field and for JSON
    /// sources.
    #[must_use]
    pub fn line(&self, path: &str) -> Option<usize> {
        self.position(path).map(|position| position.line)
    }

    /// The place where the source first sets the field; `None` for an absent field and for JSON sources.
    #[must_use]
    pub fn position(&self, path: &str) -> Option<TextPosition> {
        self.positions.get(path).copied().flatten()
    }

    /// All paths, in alphabetical order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.positions.keys().map(String::as_str)
    }

    /// The names of the configuration's own fields that the source sets, in alphabetical order.
    pub fn top_level(&self) -> impl Iterator<Item = &str> {
        self.positions.keys().map(String::as_str).filter(|path| !path.contains(['.', '[']))
    }

    /// Records that `path` is set. The first recorded position stays.
    pub(crate) fn note(&mut self, path: &str, position: Option<TextPosition>) {
        if !self.positions.contains_key(path) {
            self.positions.insert(path.to_owned(), position);
        }
    }
}
