//! The JSON dialect of the protocol: what RapidJSON accepts with bare NaN and infinities, and its words for refusals.
//!
//! Clients compare the texts and the byte offsets of errors, so no other parser will do. Differences to standard JSON:
//! the tokens `NaN`, `Inf`, `Infinity` and their negatives are numbers; a byte order mark is skipped; the document ends
//! at a NUL byte; strings are bytes whose encoding nobody checks; the first of two equal keys counts.
//!
//! `reader` knows tokens and grammar and tells a handler what it meets; `builder` is the handler that makes the tree of
//! `document`, `elements` the one that turns an array of numbers straight into the bytes of a tensor, and `nested` the one that
//! notes the shape on the way. `number` reads digits eight at a time. `steps` lets tests count what decoding costs.
mod builder;
mod document;
mod elements;
mod nested;
mod number;
mod reader;
mod steps;
mod syntax;
mod write;

pub(crate) use document::{Document, JsonValue};
pub(crate) use nested::Nested;
#[cfg(test)]
pub(crate) use steps::of as steps_of;
pub(crate) use syntax::{Number, access};
pub(crate) use write::{write_double, write_int, write_single, write_string, write_uint};
