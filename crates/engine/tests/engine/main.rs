//! Tests of the engine with its own repositories, and with backends whose behaviour each test defines.
#![expect(clippy::unwrap_used, reason = "tests, and what they share, fail by it")]
mod agents;
mod asking;
mod backpressure;
mod cache_controls;
mod caching;
mod concurrency;
mod control;
mod distributions;
mod documentation;
mod ensemble_sequences;
mod ensembles;
mod freed_requests;
mod host_policies;
mod inferring;
mod instances;
mod loading;
mod observing;
mod policies;
mod repository;
mod sequence_reloads;
mod single_flight;
mod stopping;
mod stores;
mod strategies;
mod support;
