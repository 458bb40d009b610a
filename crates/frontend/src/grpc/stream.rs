//! `ModelStreamInfer`: any number of requests and any number of responses in one call.
mod body;
mod carried_sequences;
mod refusals;
mod streamed_request;

pub(super) use body::StreamBody;
