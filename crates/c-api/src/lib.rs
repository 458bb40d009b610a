//! Triton's C interfaces: shared libraries as backends, and the functions that such libraries call.
//!
//! Exported functions are short: each checks its arguments, borrows the objects behind the handles, calls safe code and
//! maps the error. This crate makes no decisions about serving. The crate `in-process` has the server and the requests
//! of the C interface (`TRITONSERVER_Server*`, `TRITONSERVER_InferenceRequest*`), because it knows the engine.
//!
//! # Safety
//! These promises hold for every exported function, as the four headers of Triton say. A handle is null, or this
//! library has returned it with that type and the caller has not deleted it. A text is null or ends with a NUL. An
//! output parameter is null or may be written. An array is null or has as many elements as the number beside it says.
//! Null for a required argument gives INVALID_ARG.
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
