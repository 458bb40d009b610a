//! Mistakes in the JSON form of a configuration.
use std::fmt;

/// A mistake in a JSON source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The field, such as `input[0].dims`; empty for a mistake that concerns the whole document.
    pub path: String,
    /// Describes the mistake in one line.
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for JsonError {}
