//! ONNX Runtime's C interface behind safe types; the only place of this crate with `unsafe`.
//!
//! `ort-sys` gives the layout of the function table and nothing else; the library is opened at run time. What the safe
//! types promise:
//! - a [`InputValue`] borrows the bytes it was made over, so a run never reads freed memory;
//! - an [`OutputValue`] owns what the runtime allocated and keeps its [`Session`] alive, because the memory comes from the
//!   session's arena;
//! - a [`Session`] keeps its [`Runtime`] alive, and a library once opened is never closed (it has threads and
//!   thread-local destructors of its own).
//!
//! Enums that come *from* the library are read as integers: a newer library may know values that `ort-sys` does not.
mod element;
mod failure;
mod memory;
mod options;
mod output;
mod runtime;
mod session;
mod signature;
mod telemetry;
mod value;

pub(crate) use element::Element;
pub(crate) use failure::OrtError;
pub(crate) use memory::{AlignedBuffer, TrimWhenDropped};
pub(crate) use options::{GraphLevel, SessionOptions};
pub(crate) use output::OutputValue;
pub(crate) use runtime::{GlobalThreads, Runtime};
pub(crate) use session::{Feed, RunOptions, Session};
pub(crate) use signature::{Signature, ValueInfo, ValueKind};
pub(crate) use telemetry::{disable_telemetry_by_environment, is_telemetry_disabled_by_environment};
pub(crate) use value::{InputValue, Strings};
