//! The server that the options name.

use anyhow::Result;
use client::endpoint::ServerEndpoint;

use crate::options::{PerfOptions, Protocol};

/// What makes connections to the server.
///
/// # Errors
/// The trusted certificates cannot be read, the host has no name that a certificate can have, or a header is none.
pub(crate) fn endpoint(options: &PerfOptions) -> Result<ServerEndpoint> {
    let is_grpc = options.protocol == Protocol::Grpc;
    let endpoint = ServerEndpoint::at(&options.address, options.encryption.as_ref(), is_grpc)?;
    endpoint.with_call_headers(&options.headers, options.compression)
}
