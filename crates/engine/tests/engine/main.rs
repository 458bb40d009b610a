//! The engine on repositories of its own, with backends whose behaviour each test writes down.
#![expect(clippy::unwrap_used, reason = "tests, and what they share, fail by it")]
mod agents;
mod asking;
mod caching;
mod concurrency;
mod documentation;
mod host_policies;
mod loading;
mod observing;
mod repository;
mod stopping;
mod strategies;
mod support;
