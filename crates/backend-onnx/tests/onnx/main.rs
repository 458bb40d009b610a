//! Tests of the backend with the real library and with graphs made for each test.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod batching;
mod datatypes;
mod foreign_memory;
mod graph;
mod iteration;
mod loading;
mod memory;
mod probes;
mod refusals;
mod sequences;
mod states;
mod support;
mod zip_maps;
