//! The backend for ONNX Runtime.
//!
//! `native_backend` has what backends share: instances that pass requests to a graph and answer them, completion and
//! checks of configurations. This crate has what is ONNX Runtime's: the wrapper of its C interface (`ort`), a session as
//! a graph (`graph`), the files of models and their settings.
//!
//! The crate does not decide how many processors an instance uses (the engine does) or which requests form a batch, and
//! has no part of the network. The build does not depend on the library: the backend looks for it at run time
//! ([`LibrarySearch`](native_backend::LibrarySearch)).
#![deny(unsafe_code, missing_docs)]

mod bench_baseline;
mod external_data;
mod graph;
mod graph_file;
mod inspection;
mod known_graphs;
mod library;
mod model;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod ort;
mod session_memory;
mod settings;
mod telemetry;
mod wire;
mod zip_map;

pub use bench_baseline::BareLoop;
pub use external_data::has_external_data;
pub use model::OnnxBackend;
pub use telemetry::prevent_telemetry;
