//! Which fields a source mentioned, and on which line.

use std::collections::BTreeMap;

/// The fields that a source set, by path.
///
/// A path is made of field names and positions: `max_batch_size`, `input[0].dims`, `dynamic_batching`. Entries of
/// maps count by their position in the source. A message or list is present under its own path as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    lines: BTreeMap<String, Option<usize>>,
}

impl Fields {
    /// Whether the source set the field, be it to its default.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.lines.contains_key(path)
    }

    /// The line, counted from 1, where the field is first set; none for an absent field and for JSON sources.
    #[must_use]
    pub fn line(&self, path: &str) -> Option<usize> {
        self.lines.get(path).copied().flatten()
    }

    /// The names of the fields of the configuration itself that the source set, in alphabetical order.
    pub fn top_level(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str).filter(|path| !path.contains(['.', '[']))
    }

    /// Notes that `path` is set; the first line stays.
    pub(crate) fn note(&mut self, path: &str, line: Option<usize>) {
        if !self.lines.contains_key(path) {
            self.lines.insert(path.to_owned(), line);
        }
    }
}
