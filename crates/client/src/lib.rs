//! Connections to a server of the KServe v2 protocol, over HTTP/1.1 and gRPC, plain or encrypted.
//!
//! They do the least possible work: a request is prepared bytes, and of a response only the necessary parts are read. So a
//! program that shares the processor with the server that it calls takes little of it.

#![forbid(unsafe_code)]

mod answer_body;
pub mod call_outcome;
pub mod endpoint;
mod events;
pub mod fetch;
pub mod framing;
pub mod grpc;
pub mod http;
pub mod timer;
