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
pub mod json;
mod reference;
mod schema;
mod suggest;
pub mod text;

mod generated {
    #![expect(
        missing_docs,
        reason = "fields whose name says everything have no description in the .proto files"
    )]

    pub(crate) mod inference {
        include!(concat!(env!("OUT_DIR"), "/inference.rs"));
    }
    pub mod health {
        include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
    }
}

pub use fields::{Fields, TextPosition};
pub use generated::health;
pub use generated::inference::*;
pub use reference::{DocumentedField, DocumentedMessage, documented_messages};
pub use schema::json_schema;
pub use suggest::nearest;

/// Encoded `google.protobuf.FileDescriptorSet` with all files of the protocol, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/all.descriptors"));

/// A configuration that was read from its text or JSON form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The values. A field that the source omits has its default.
    pub config: ModelConfig,
    /// The fields that the source sets. `config` cannot distinguish them from defaults.
    pub fields: Fields,
}
