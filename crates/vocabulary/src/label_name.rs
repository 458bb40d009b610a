//! The names of labels of metrics.
use std::{
    borrow::{Borrow, Cow},
    fmt,
};

use crate::Error;

/// The name of a label of a metric. A scraper can read it.
///
/// Invariant: ASCII letters, digits (not first) and underscores, but not two underscores at the beginning, which Prometheus
/// keeps for itself. A page of metrics with one other name is unreadable as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelName(Cow<'static, str>);

impl LabelName {
    /// A name of Nereid's own labels.
    ///
    /// # Panics
    /// It is no name of a label.
    pub const fn of(name: &'static str) -> Self {
        assert!(is_label_name(name.as_bytes()), "not the name of a label");
        Self(Cow::Borrowed(name))
    }

    /// A name from outside.
    ///
    /// # Errors
    /// INVALID_ARG if it is no name of a label.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        if !is_label_name(name.as_bytes()) {
            return Err(Error::invalid("Invalid label name"));
        }
        Ok(Self(Cow::Owned(name)))
    }
}

const fn is_label_name(name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        let byte = name[index];
        if !(byte.is_ascii_alphabetic() || byte == b'_' || (index > 0 && byte.is_ascii_digit())) {
            return false;
        }
        index += 1;
    }
    !matches!(name, [] | [b'_', b'_', ..])
}

impl Borrow<str> for LabelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::LabelName;

    #[test]
    fn a_name_is_one_that_a_scraper_can_read() {
        for good in ["a", "_", "_a1", "A_b_", "_1", "a__"] {
            assert_eq!(LabelName::new(good).unwrap().to_string(), good);
        }
        for bad in ["", "1a", "__a", "a:b", "a b", "é", "a-b", "a\n"] {
            assert_eq!(LabelName::new(bad).unwrap_err().message, "Invalid label name", "{bad}");
        }
    }
}
