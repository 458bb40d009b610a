//! What the build makes of the `.proto` files.
#![expect(missing_docs, reason = "fields whose name says everything have no description in the .proto files")]

pub(crate) mod inference {
    include!(concat!(env!("OUT_DIR"), "/inference.rs"));
}
pub mod health {
    include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
}
