//! The backend for OpenVINO.
//!
//! `native_backend` has what backends share: instances that pass requests to a graph and answer them, completion and
//! checks of configurations. This crate has what is OpenVINO's: the wrapper of its C interface (`ov`), a request of a
//! compiled model as a graph (`graph`), the files of models and their parameters.
//!
//! The build does not depend on the library, which the backend opens at run time
//! ([`LibrarySearch`](native_backend::LibrarySearch)).
#![deny(unsafe_code, missing_docs)]

mod bench_baseline;
mod compilation;
mod element_names;
mod graph;
mod inspection;
mod ir_file;
mod library;
mod model;
mod model_file;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod ov;
mod settings;
mod shapes;
mod signature;
mod weights;

pub use bench_baseline::RunOverhead;
pub use model::OpenVinoBackend;
