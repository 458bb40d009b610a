//! The parsers of bytes from clients, as entrances for fuzzers. They exist only with the feature `fuzzing`, and are no
//! part of the interface of this crate.
//!
//! An entrance does with the bytes what a connection does, and drops the result. It panics if a parser breaks a promise.
pub use crate::{
    compression::fuzzing::inflate,
    grpc::fuzzing::{frames, infer_message, messages},
    http::fuzzing::{generate, infer, route},
    port::tls::fuzzing::certificate,
};
