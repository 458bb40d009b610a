//! Safe types over ONNX Runtime's C interface; the only module of this crate with `unsafe`.
//!
//! `ort-sys` provides only the layout of the function table. The library is opened at run time. The safe types
//! guarantee:
//! - an [`InputValue`] borrows the bytes it was made over, so a run never reads freed memory;
//! - an [`OutputPlace`] borrows the foreign memory it was made over, so a run never writes freed memory;
//! - an [`OutputValue`] owns what the runtime allocated and keeps its [`Session`] alive, because the memory comes from
//!   the session's allocator;
//! - a [`Session`] keeps the [`FilesInMemory`] that it was made with, because the runtime reads tensors there;
//! - a [`Session`] keeps its [`Runtime`] alive, and an opened library is never closed (it has threads and
//!   thread-local destructors of its own).
//!
//! Enums that come *from* the library are read as integers: a newer library may use values that `ort-sys` lacks.
mod allocated_memory;
mod element;
mod failure;
mod files;
mod operator_domains;
mod options;
mod output;
mod process_allocator;
mod run;
mod runtime;
mod session;
mod signature;
mod telemetry;
mod value;

pub(crate) use allocated_memory::AllocatedMemory;
pub(crate) use element::Element;
pub(crate) use failure::OrtError;
pub(crate) use files::{FileContent, FilesInMemory};
pub(crate) use options::{GraphLevel, SessionOptions};
pub(crate) use output::OutputValue;
pub(crate) use run::RunOptions;
pub(crate) use runtime::{GlobalThreads, Runtime};
pub(crate) use session::Session;
pub(crate) use signature::other_kind;
pub(crate) use telemetry::{disable_telemetry_by_environment, is_telemetry_disabled_by_environment};
pub(crate) use value::{InputValue, OutputPlace, RunInput, RunTensor, Strings};
