//! ONNX Runtime as a backend.
//!
//! The way of a tensor: `gather` hands the bytes of a request to the runtime, a run computes, `scatter` hands the
//! runtime's memory to the responses. A request that runs alone is not copied on this way, one of several is copied
//! once, on its way in. What a sequence remembers (`state`) goes out and in again in the same way. What is fed and
//! fetched is decided once per instance (`plan`), from a configuration that was completed (`complete`, `batch_size`,
//! `probe`) and checked (`validate`) against the graph.
//!
//! Not here: how many processors there are for an instance (the engine says), which requests form a batch, and anything
//! of the network. The library itself is no dependency of the build: it is looked for at run time ([`LibrarySearch`]).
#![deny(unsafe_code, missing_docs)]

mod batch_inputs;
mod batch_size;
mod bench_baseline;
mod complete;
mod gather;
mod instance;
mod iteration;
mod library;
mod model;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod ort;
mod plan;
mod probe;
mod scatter;
mod settings;
mod state;
mod strings;
mod telemetry;
mod validate;
mod zip_map;

pub use bench_baseline::BareLoop;
pub use library::{LibrarySearch, python_prefixes};
pub use model::OnnxBackend;
pub use telemetry::prevent_telemetry;
