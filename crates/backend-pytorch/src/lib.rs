//! The backend for packages of AOTInductor, the compiled models of PyTorch.
//!
//! `native_backend` has what backends share: instances that pass requests to a graph and answer them. This crate has
//! what is PyTorch's: the archive of a model (`archive`, `package`), what its code needs (`machine_code`,
//! `requirements`), the names of its tensors (`call_spec`, `tensor_bindings`), and the wrapper of PyTorch's C interface
//! (`torch`).
//!
//! The build does not depend on PyTorch, whose library the backend opens at run time
//! ([`LibrarySearch`](native_backend::LibrarySearch)). Nothing is compiled.
#![deny(unsafe_code, missing_docs)]

mod archive;
mod bench_baseline;
mod call_spec;
mod choice;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod graph;
mod library;
mod machine_code;
mod model;
mod model_file;
mod package;
mod requirements;
mod settings;
mod tensor_bindings;
#[cfg(test)]
mod test_archives;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod torch;

pub use bench_baseline::CodeOverhead;
pub use model::{AotInductorBackend, check_inputs_of_code};
