//! Tests of the backend with the real library and the models of `tests/models`.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod choice;
mod loading;
mod parameters;
mod requests;
mod support;
