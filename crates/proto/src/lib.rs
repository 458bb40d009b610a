//! The protocol buffers of the inference protocol as Rust types, with their text and JSON forms.
//!
//! The messages of package `inference` are at the root, those of `grpc.health.v1` in [`health`]. [`text`] reads
//! `config.pbtxt`. [`json`] reads and writes the JSON form of a [`ModelConfig`]. This crate does not interpret
//! values: the crate `inference` contains the rules about configurations.
//!
//! Maps are ordered, so that the output is the same each time.

#![forbid(unsafe_code)]

mod descriptors;
mod fields;
mod generated;
pub mod json;
mod parsed;
mod reference;
mod schema;
mod suggest;
pub mod text;

pub use descriptors::FILE_DESCRIPTOR_SET;
pub use fields::{Fields, TextPosition};
pub use generated::health;
pub use generated::inference::*;
pub use parsed::Parsed;
pub use reference::{DocumentedField, DocumentedMessage, documented_messages};
pub use schema::json_schema;
pub use suggest::{did_you_mean, meant_datatype, nearest};
