//! Tests of native instances with graphs in memory, without a library.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod batching;
mod graph;
mod iteration;
mod loading;
mod places;
mod states;
mod support;
