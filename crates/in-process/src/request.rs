//! `TRITONSERVER_InferenceRequest`: a request of the application. The handle keeps its contents, so it can be sent
//! again.
mod about;
mod attributes;
mod inference_request;
mod pieces;
mod return_guard;
mod tensors;

pub use about::*;
pub use inference_request::*;
pub(crate) use pieces::MemoryOwner;
pub(crate) use return_guard::RequestReturnGuard;
pub use tensors::*;
