//! The JSON dialect of the protocol: it accepts what RapidJSON accepts with NaN and infinities, and refuses with the
//! texts of RapidJSON.
//!
//! Clients compare the texts and the byte offsets of errors, so the server cannot use another parser. Differences from
//! standard JSON: the tokens `NaN`, `Inf`, `Infinity` and their negatives are numbers; a byte order mark is skipped;
//! the document ends at a NUL byte; strings are bytes, and their encoding is not checked; the first of two equal keys
//! counts.
//!
//! `reader` reads tokens, checks the grammar, and calls a visitor for each value. Three modules have visitors:
//! `document::builder` makes the tree of `document`, `elements` turns an array of numbers directly into the bytes of a tensor,
//! and `nested_elements` also records the shape. `long_read` divides the work on a long text. `reader::number` reads digits
//! eight at a time. `steps` lets tests count the cost of decoding.
mod document;
mod elements;
mod long_read;
mod nested_elements;
mod reader;
mod steps;
mod syntax;

pub(crate) use document::{Document, JsonValue};
pub(crate) use long_read::{JsonText, LongRead};
pub(crate) use nested_elements::NestedElements;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use steps::of as steps_of;
pub(crate) use syntax::{Number, access, during};
