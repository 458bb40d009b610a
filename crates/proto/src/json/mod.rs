//! The JSON form of a configuration.
//!
//! What is written is what the config endpoint serves: names as in the `.proto` file, fields in the order of their
//! declaration, defaults included. What is read is the usual JSON mapping of protocol buffers.

mod document;
mod keys;
mod read;
mod write;

use std::fmt;

pub use write::to_json;

use crate::Parsed;

/// Reads a configuration from its JSON form; `{}` is an empty configuration.
///
/// Names may be snake_case or camelCase, integers numbers or strings, enumerations names in any case or numbers;
/// `null` counts as absent.
///
/// # Errors
/// The first mistake in the source.
pub fn parse(source: &str) -> Result<Parsed, JsonError> {
    read::parse(source)
}

/// A mistake in a JSON source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The field, such as `input[0].dims`; empty for a mistake of the document as a whole.
    pub path: String,
    /// What is wrong, in one line.
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
