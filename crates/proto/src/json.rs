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
pub use read::{MOST_FOR_A_BYTE, parse};
pub use write::to_json;
