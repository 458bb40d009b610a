//! The server inside a program: `tritonserver.h`, from options to responses.
//!
//! This crate makes a server from options in C: an engine, with the backends that `assembly` gives. Requests and
//! responses pass by function calls. The binary uses the same handle ([`Server`]) for plug-ins that call the server they run in.
//!
//! Callbacks run on a pool of threads of their own (`calls`). They may block, call any function of this crate, and
//! come before `TRITONSERVER_ServerInferAsync` returns. No lock is held during a callback. Nothing in this crate needs
//! a network.
//!
//! # Safety
//! These promises hold for every exported function, as the header says. A handle is null, or this library has returned
//! it with that type and the caller has not deleted it. A text is null or ends with a NUL. An output parameter is null
//! or may be written. An array is null or has as many elements as the number beside it says. Null for a required
//! argument gives INVALID_ARG. The application does not change the memory of inputs until the request is given back.
#![deny(missing_docs)]
#![expect(clippy::missing_safety_doc, reason = "said once for all of them above")]

pub mod allocator;
mod callback_dispatcher;
mod calls;
pub mod infer;
pub mod metrics;
pub mod options;
pub mod request;
pub mod response;
pub mod server;

pub use c_api::types::metrics::source as custom_metrics;
pub use server::{EXTENSIONS, Server, TRITON_VERSION};
