//! The inference protocol over gRPC: `inference.GRPCInferenceService`, `grpc.health.v1.Health` and server reflection.
//!
//! hyper owns the connections; calls are dispatched by path, framed and coded here. The two infer calls have codecs of
//! their own (`decode`, `encode`) that do not copy tensors; everything else uses the generated types.
//!
//! [`serve`] is the door: a bound listener and a [`GrpcState`] in, nothing out until the drain has emptied.
mod admin;
mod calls;
mod cancellation;
mod client_certificates;
mod compression;
mod connection;
mod contents;
mod decode;
mod encode;
mod frames;
mod framing;
mod infer;
mod keepalive;
mod message;
mod metadata;
mod options;
mod parameters;
mod police;
mod reflection;
mod reply;
mod request;
mod service;
mod state;
mod status;
mod stream;
mod tls;
mod transport;
mod v1_certificate;
mod wire;

pub use connection::serve;
pub use keepalive::KeepaliveRules;
pub use options::{CompressionLevel, GrpcOptions, TlsOptions};
pub use police::PingRules;
pub use state::GrpcState;

#[cfg(test)]
mod tests;
