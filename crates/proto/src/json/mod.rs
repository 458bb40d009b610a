//! The JSON form of a configuration.
//!
//! The writer produces what the config endpoint serves: names as in the `.proto` file, fields in the order of their
//! declaration, including defaults. The reader accepts the usual JSON mapping of protocol buffers.

mod document;
mod keys;
mod read;
mod write;

use std::fmt;

pub use write::to_json;

use crate::Parsed;

/// Reads a configuration from its JSON form; `{}` is an empty configuration.
///
/// Field names may be snake_case or camelCase. Integers may be numbers or strings. Enumerations may be numbers, or
/// names in any case. `null` means that the field is absent.
///
/// # Errors
/// The first mistake in the source.
pub fn parse(source: &str) -> Result<Parsed, JsonError> {
    read::parse(source)
}

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
