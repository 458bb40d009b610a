//! KServe v2 over HTTP and gRPC, and the metrics endpoint.
//!
//! An endpoint decodes a request, hands it to the engine, and encodes what comes back. What a request means stands in
//! [`kserve`], how it looks on the wire in [`http`] and [`grpc`]; neither decides anything about scheduling or models.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod chunks;
mod compression;
pub mod connection;
mod cursor;
mod decode_pool;
pub mod drain;
pub mod error;
pub mod forward;
pub mod grpc;
pub mod http;
mod inline_wake;
pub mod kserve;
pub mod listen;
pub mod metrics;
pub mod restrict;
