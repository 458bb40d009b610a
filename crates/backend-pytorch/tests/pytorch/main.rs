//! The backend with stand-ins for PyTorch's library and for compiled code, which the C compiler makes.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod refusals;
mod requests;
mod support;
