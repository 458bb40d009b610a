//! The server inside somebody else's program: `tritonserver.h`, from options to responses.
//!
//! A second composition root beside the binary: here the program's own options, in C, become an engine with its
//! backends, and requests come and go by function calls. The binary uses the same handle ([`Server`]) for plug-ins that
//! call the server they run in.
//!
//! Callbacks are made on whatever thread has the news: the one that answers, or the one that asked, even before
//! `TRITONSERVER_ServerInferAsync` returns. No lock is held meanwhile, so a callback may call anything here. Nothing on
//! this way needs a network runtime.
//!
//! # Safety
//! What holds for every exported function, as the header says: a handle is null or has come from this library as that
//! type and has not been deleted; a text is null or ends with a NUL; a place for an answer is null or may be written; an
//! array is null or has as many elements as the number beside it says. Null where something is needed is answered with
//! INVALID_ARG. The memory of inputs stays as it is until the request comes back.
#![deny(missing_docs)]
#![expect(clippy::missing_safety_doc, reason = "said once for all of them above")]

pub mod allocator;
mod callback_dispatcher;
mod calls;
pub mod infer;
pub mod logging;
pub mod metrics;
pub mod options;
mod plugins;
pub mod request;
pub mod response;
pub mod server;

pub use c_api::types::metrics::source as custom_metrics;
pub use plugins::plugins;
pub use server::{EXTENSIONS, Server, TRITON_VERSION};

use inference::Error;

/// The refusal of what this server does not have.
fn not_offered(what: &str) -> Error {
    Error::unsupported(format!("{what} is not supported by this version of nereid"))
}
