//! Prepares the requests of a run, so that sending one costs little.
//!
//! A request whose parameters never change is prepared as a whole. A request of a sequence differs from the others in the
//! id and the flags, so it is put together from prepared parts.

mod generate;
mod grpc;
mod http;
mod members;
#[cfg(test)]
mod tests;

pub(crate) use self::generate::GenerateTemplate;
pub(crate) use self::grpc::GrpcTemplate;
pub(crate) use self::http::HttpTemplate;
