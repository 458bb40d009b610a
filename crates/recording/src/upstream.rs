//! The server that calls go to: any number of connections over one protocol.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use client::endpoint::{ServerEndpoint, ServerStream};
use client::fetch::ServerAddress;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, request};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower_service::Service;

use crate::event::CallProtocol;

/// Connections that were not used for so long are closed.
const IDLE: Duration = Duration::from_secs(30);
/// The sizes of the windows of HTTP/2, in bytes. They are large enough that tensors of megabytes need few round trips.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// See the module documentation. A clone shares the connections.
pub(crate) struct Upstream<B> {
    client: Client<EndpointConnector, B>,
    authority: String,
}

impl<B> Clone for Upstream<B> {
    fn clone(&self) -> Self {
        Upstream { client: self.client.clone(), authority: self.authority.clone() }
    }
}

impl<B> Upstream<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Makes no connection yet.
    ///
    /// # Errors
    /// The trusted certificates cannot be read, or the host has no name that a certificate can have.
    pub(crate) fn new(address: &ServerAddress, protocol: CallProtocol) -> Result<Upstream<B>> {
        let is_grpc = protocol == CallProtocol::Grpc;
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_grpc)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(EndpointConnector(address.endpoint(is_grpc)?));
        Ok(Upstream { client, authority: address.host.clone() })
    }

    /// Sends a call, with the path of `parts`. Returns when the head of the answer is there.
    ///
    /// # Errors
    /// The server is not reachable, or the connection broke.
    pub(crate) async fn send(&self, mut parts: request::Parts, body: B) -> Result<Response<Incoming>, Error> {
        let path = parts.uri.into_parts().path_and_query;
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(http::uri::Scheme::HTTP);
        uri.authority = self.authority.parse().ok();
        uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        // An authority that is none is refused by the client, as one without a host.
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
        parts.version = http::Version::default();
        self.client.request(Request::from_parts(parts, body)).await
    }
}

/// Makes connections to one server, whatever is asked for.
#[derive(Clone)]
struct EndpointConnector(ServerEndpoint);

impl Service<Uri> for EndpointConnector {
    type Response = TokioIo<ServerStream>;
    type Error = anyhow::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _server: Uri) -> Self::Future {
        let endpoint = self.0.clone();
        Box::pin(async move { endpoint.connect().await.map(TokioIo::new) })
    }
}
