//! Calls the exported functions as a program in C does.
#![expect(clippy::unwrap_used, reason = "tests, and what they share, fail by it")]
mod allocators;
mod callbacks;
mod options;
mod requests;
mod servers;
mod support;
mod traces;
mod versions;
