//! Triton's C interfaces: shared libraries as backends, and the functions that such libraries call.
//!
//! The wall has thin doors: each exported function checks its arguments, borrows the objects behind the handles, calls
//! safe code and maps the error. Nothing here decides anything. The server itself and its requests as C sees them
//! (`TRITONSERVER_Server*`, `TRITONSERVER_InferenceRequest*`) lie in the crate `in-process`, which knows the engine.
//!
//! # Safety
//! What holds for every exported function, as the four headers of the reference say: a handle is null or has come from
//! this library as that type and has not been deleted; a text is null or ends with a NUL; a place for an answer is null
//! or may be written; an array is null or has as many elements as the number beside it says. Null where something is
//! needed is answered with INVALID_ARG.
#![deny(missing_docs)]
#![expect(clippy::missing_safety_doc, reason = "said once for all of them above")]

pub mod agent;
pub mod backend;
pub mod batching;
pub mod cache;
pub mod handle;
pub mod plugin;
mod pointers;
mod stable_box;
pub mod types;
