//! The fields that a source sets, with their lines.

use std::collections::BTreeMap;

/// The fields that a source sets, by path.
///
/// A path consists of field names and positions: `max_batch_size`, `input[0].dims`, `dynamic_batching`. The position
/// of a map entry is its position in the source. A message or list also has an entry under its own path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    lines: BTreeMap<String, Option<usize>>,
}

impl Fields {
    /// Whether the source sets the field, even to its default.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.lines.contains_key(path)
    }

    /// The line, counted from 1, where the source first sets the field; `None` for an absent field and for JSON
    /// sources.
    #[must_use]
    pub fn line(&self, path: &str) -> Option<usize> {
        self.lines.get(path).copied().flatten()
    }

    /// The names of the configuration's own fields that the source sets, in alphabetical order.
    pub fn top_level(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str).filter(|path| !path.contains(['.', '[']))
    }

    /// Records that `path` is set. The first recorded line stays.
    pub(crate) fn note(&mut self, path: &str, line: Option<usize>) {
        if !self.lines.contains_key(path) {
            self.lines.insert(path.to_owned(), line);
        }
    }
}
