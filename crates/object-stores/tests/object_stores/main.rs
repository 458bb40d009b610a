//! Tests of repositories in object stores with processes: real servers, and a process that is killed.
#![expect(clippy::unwrap_used, reason = "tests, and what they share, fail by it")]

mod killed;
mod servers;
