//! Response caches that are built into the server.
//!
//! They know neither models nor protocols. The engine names responses by keys.
#![forbid(unsafe_code)]

pub mod local;
pub mod redis;
mod use_counts;
