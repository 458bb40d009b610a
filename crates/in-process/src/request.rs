//! `TRITONSERVER_InferenceRequest`: a request of the application. The handle keeps its contents, so it can be sent
//! again.
mod about;
mod attributes;
mod borrowed_inputs;
mod inference_request;
mod return_guard;
mod tensors;

pub use about::*;
pub(crate) use borrowed_inputs::MemoryOwner;
pub use inference_request::*;
pub(crate) use return_guard::RequestReturnGuard;
pub use tensors::*;
