//! KServe v2 over HTTP and gRPC, and the metrics endpoint.
//!
//! An endpoint decodes a request, passes it to the engine, and encodes the responses. [`kserve`] defines what a request
//! means. [`http`] and [`grpc`] define its form on the wire. Neither decides anything about scheduling or models.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod access_log;
pub mod api_keys;
mod cache_headers;
mod chunks;
mod compression;
pub mod connection;
mod counted_bytes;
mod cursor;
mod decode_pool;
pub mod drain;
pub mod error;
pub mod forward;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
pub mod http;
mod inline_wake;
pub mod kserve;
pub mod listen;
pub mod log_control;
mod long_write;
pub mod metrics;
pub mod reload;
mod request_facts;
pub mod restrict;
pub mod tls;
mod tracing;
mod turns;
