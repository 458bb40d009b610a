//! The JSON form of a configuration.
//!
//! The writer produces what the config endpoint serves: names as in the `.proto` file, fields in the order of their
//! declaration, including defaults. The reader accepts the usual JSON mapping of protocol buffers.

mod document;
mod error;
mod keys;
mod read;
mod write;

pub use error::JsonError;
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
