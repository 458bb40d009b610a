//! KServe v2 over HTTP and gRPC, and the metrics endpoint.
//!
//! An endpoint decodes a request, passes it to the engine, and encodes the responses. The crate `kserve` defines what a request
//! means. [`http`] and [`grpc`] define its form on the wire. Neither decides anything about scheduling or models.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod access;
mod cache_headers;
mod chunks;
mod compression;
mod counted_bytes;
mod cursor;
mod decode_pool;
pub mod error;
pub mod forward;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
pub mod http;
mod load_report;
mod meant_model;
pub mod metrics;
pub mod port;
mod server_name;
mod tracing;
mod turns;

pub use server_name::ServerName;
