//! The backend for ONNX Runtime.
//!
//! `gather` passes the bytes of the requests to the runtime, a run computes, and `scatter` passes the runtime's memory
//! to the responses. The tensors of a request that runs alone are not copied. The tensors of several requests are
//! copied once, before the run. States of sequences (`state`) pass the same steps. `plan` decides once for each
//! instance which inputs and outputs a run uses. It uses a configuration that `complete`, `batch_size` and `probe` have
//! completed, and `validate` has checked against the graph.
//!
//! The crate does not decide how many processors an instance uses (the engine does) or which requests form a batch, and
//! has no part of the network. The build does not depend on the library: the backend looks for it at run time
//! ([`LibrarySearch`]).
#![deny(unsafe_code, missing_docs)]

mod batch_inputs;
mod batch_size;
mod bench_baseline;
mod complete;
mod external_data;
mod gather;
mod graph_file;
mod inspection;
mod instance;
mod iteration;
mod library;
mod model;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod ort;
mod output_places;
mod plan;
mod probe;
mod scatter;
mod session_memory;
mod settings;
mod state;
mod strings;
mod telemetry;
mod validate;
mod wire;
mod zip_map;

pub use bench_baseline::BareLoop;
pub use external_data::has_external_data;
pub use library::{LibrarySearch, python_prefixes};
pub use model::OnnxBackend;
pub use ort::free_idle_buffers;
pub use telemetry::prevent_telemetry;
