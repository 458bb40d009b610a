//! From what a worker sends to the answers of its requests and its questions.
pub(crate) mod answers;
pub(crate) mod inference_requests;
pub(crate) mod outputs;
pub(crate) mod questions;
pub(crate) mod reading;
