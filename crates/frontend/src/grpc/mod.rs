//! The inference protocol over gRPC: `inference.GRPCInferenceService`, `grpc.health.v1.Health` and server reflection.
//!
//! hyper owns the connections; calls are dispatched by path, framed and coded here. The two infer calls have codecs of
//! their own (`decode`, `encode`) that do not copy tensors; everything else uses the generated types.
//!
//! [`serve`] is the door: a bound listener and a [`GrpcState`] in, nothing out until the drain has emptied.
mod admin;
mod cancellation;
mod compression;
mod connection;
mod contents;
mod decode;
mod encode;
mod framing;
mod infer;
mod message;
mod metadata;
mod options;
mod parameters;
mod reflection;
mod reply;
mod request;
mod service;
mod state;
mod status;
mod stream;
mod tls;
mod wire;

pub use connection::serve;
pub use options::{CompressionLevel, GrpcOptions, TlsOptions};
pub use state::GrpcState;

#[cfg(test)]
mod tests;
