//! Lines of names and values.

use std::str::FromStr;

use crate::fault::{ForestError, malformed};

/// The fields up to the next tree.
pub(super) struct TextFields<'f> {
    fields: Vec<(&'f str, &'f str)>,
    /// Whether a tree follows. Otherwise the trees have ended.
    pub(super) ends_with_tree: bool,
}

impl<'f> TextFields<'f> {
    /// Reads the lines up to the next `Tree=` or `end of trees`.
    pub(super) fn read(lines: &mut impl Iterator<Item = &'f [u8]>) -> Result<Self, ForestError> {
        let mut fields = Vec::new();
        for line in lines {
            let ends_with_tree = line.starts_with(b"Tree=");
            if ends_with_tree || line == b"end of trees" {
                return Ok(Self { fields, ends_with_tree });
            }
            // Names of features may have any bytes. No other field does.
            let Ok(line) = std::str::from_utf8(line) else { continue };
            if !line.is_empty() {
                fields.push(line.split_once('=').unwrap_or((line, "")));
            }
        }
        Err(malformed("last line", "the file must have the line `end of trees`"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'f str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub(super) fn text(&self, name: &str) -> Result<&'f str, ForestError> {
        self.get(name).ok_or_else(|| malformed(name, "it must be there"))
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str) -> Result<usize, ForestError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| malformed(name, "it must be a whole number"))
    }

    /// A whole number that may be missing.
    pub(super) fn optional_number(&self, name: &str) -> Result<Option<usize>, ForestError> {
        if self.has(name) { self.number(name).map(Some) } else { Ok(None) }
    }

    /// A list of `count` whole numbers.
    pub(super) fn integers<I: FromStr>(&self, name: &str, count: usize) -> Result<Vec<I>, ForestError> {
        self.list(name, count, |word| word.parse().ok())
    }

    /// A list of `count` numbers.
    pub(super) fn reals(&self, name: &str, count: usize) -> Result<Vec<f64>, ForestError> {
        self.list(name, count, |word| fast_float2::parse(word).ok())
    }

    fn list<T>(
        &self,
        name: &str,
        count: usize,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, ForestError> {
        let words = self.text(name)?.split_ascii_whitespace();
        let list: Option<Vec<T>> = words.map(read).collect();
        list.filter(|list| list.len() == count)
            .ok_or_else(|| malformed(name, format!("it must be {count} numbers")))
    }
}
