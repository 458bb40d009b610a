//! The inference protocol over gRPC: `inference.GRPCInferenceService`, `grpc.health.v1.Health` and server reflection.
//!
//! hyper owns the connections. This module dispatches calls by path, and frames and encodes their messages. The two
//! infer calls have their own codecs (`message::decode`, `message::encode`), which do not copy tensors. All other calls
//! use the generated types.
//!
//! [`serve`] is the entry point: it takes a bound listener and a [`GrpcContext`], and returns when the drain has
//! finished.
mod admin;
mod call;
mod call_tasks;
mod cancellation;
mod compression;
mod connection;
mod deadline;
mod frame_limits;
mod frames;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod grpc_context;
mod infer;
mod keepalive;
mod logging;
mod message;
mod metadata;
mod options;
mod pieces;
mod reflection;
mod reflection_call;
mod reply;
mod request;
mod service;
mod shared_memory;
mod status;
mod stream;
mod transport;
mod unix_authority;
mod windows;

pub use connection::serve;
pub use frame_limits::PingRules;
pub use grpc_context::GrpcContext;
pub use keepalive::KeepaliveRules;
pub use options::{CompressionLevel, GrpcOptions};

#[cfg(test)]
mod tests;
