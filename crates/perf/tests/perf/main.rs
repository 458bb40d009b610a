//! Runs of the load generator against small servers in the same process.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a small server fails the test")]

mod echo;
mod events;
mod tool;
