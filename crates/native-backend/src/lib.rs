//! What backends share whose models a library computes in the process of the server.
//!
//! A backend implements [`Graph`] for what its library has loaded. [`NativeInstance`] does the rest of an instance:
//! `gather` passes the bytes of the requests to the graph, a run computes, and `scatter` passes the memory of its outputs
//! to the responses. The tensors of a request that runs alone are not copied. The tensors of several requests are copied
//! once, before the run. States of sequences (`state`) pass the same steps. `plan` decides once for each instance which
//! inputs and outputs a run uses. It uses a configuration that `complete`, `batch_size` and `probe` have completed, and
//! `validate` has checked against the [`Signature`] of the graph. [`LibrarySearch`] finds libraries at run time, and
//! [`is_left_to_directory`] backends of the same name that run a model instead.
//!
//! The crate knows no library. It does not decide how many processors an instance uses (the engine does) or which
//! requests form a batch, and has no part of the network.
#![deny(unsafe_code, missing_docs)]

#[expect(unsafe_code, reason = "a buffer of aligned lines is also one of bytes")]
mod aligned_buffer;
mod backend_directory;
mod batch_inputs;
mod batch_size;
mod complete;
mod copied_bytes;
mod gather;
mod graph;
mod in_place;
mod instance;
mod iteration;
mod library;
mod output_places;
mod parameters;
mod plan;
mod probe;
mod scatter;
mod signature;
mod state;
mod strings;
mod validate;

pub use aligned_buffer::{AlignedBuffer, free_idle_buffers};
pub use backend_directory::is_left_to_directory;
pub use batch_size::DefaultBatchSize;
pub use complete::{complete, is_complete};
pub use copied_bytes::CopiedBytes;
pub use graph::{
    ExpectedOutput, Feed, FeedValue, Graph, GraphOutput, LibraryFailure, NoStrings, RunOutputs, StringTensor,
};
pub use in_place::{byte_count, can_be_used, is_aligned};
pub use instance::NativeInstance;
pub use iteration::check_iteration;
pub use library::{LibrarySearch, NativeLibrary, ToldFailure, python_prefixes};
pub use parameters::{ParameterReader, boolean, integer, threads};
pub use plan::control_datatype;
pub use probe::{Rows, probe};
pub use signature::{ElementType, GraphValue, OtherKind, Signature, ValueKind};
pub use validate::{DimsRule, check_config};
