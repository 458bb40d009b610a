//! The rules of the inference protocol that HTTP, gRPC and the C interface share, and its documents.
//!
//! This crate knows no connection: callers give what they have decoded, and send what they get.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod classification;
pub mod json_text;
pub mod lengths;
pub mod log_control;
pub mod long_write;
pub mod metadata;
pub mod output;
pub mod parameters;
pub mod shared_memory;
pub mod show;
pub mod statistics;
pub mod trace_settings;
pub mod version;
