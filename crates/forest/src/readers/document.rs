//! The form that documents of JSON and of UBJSON have in common.
//!
//! Arrays of numbers are most of a model. They stay as they are in the file until a reader asks for one, in the type
//! that it wants. So a document needs less memory than its file, and arrays that nobody asks for cost nothing.

mod json;
mod numbers;
mod ubjson;
mod value;

pub(super) use json::read as read_json;
pub(super) use ubjson::read as read_ubjson;
pub(super) use value::{Object, Value};
