//! Passes calls on from a port to a server, and their answers back.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use client::fetch::ServerAddress;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use vocabulary::with_causes;

use super::observed_call::{ObservedBody, ObservedCall};
use super::recorder::Recorder;
use crate::event::CallProtocol;
use crate::forwarded_headers::remove_those_of_connection;
use crate::upstream::Upstream;

/// How long calls may take after the command was asked to end.
const FAREWELL: Duration = Duration::from_secs(5);
/// The sizes of the windows of HTTP/2, in bytes: those of a fast client.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// A connection of HTTP/2 whose client does not answer is closed: it is asked at this interval.
const ASKED_EVERY: Duration = Duration::from_secs(60);
/// The status UNAVAILABLE of gRPC.
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// A port and the server behind it.
pub(crate) struct ProxyPort {
    listener: TcpListener,
    passing: Arc<CallPassing>,
    connections: Arc<Semaphore>,
}

/// What each call needs.
struct CallPassing {
    upstream: Upstream<ObservedBody>,
    protocol: CallProtocol,
    server: String,
    recorder: Arc<Recorder>,
    has_answers: bool,
}

/// What all ports of a recording share.
#[derive(Clone)]
pub(crate) struct ProxyContext {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) has_answers: bool,
    /// One permit for each connection.
    pub(crate) connections: Arc<Semaphore>,
}

impl ProxyPort {
    /// Opens the port.
    ///
    /// # Errors
    /// The port is not free, or the server's certificates cannot be read.
    pub(crate) async fn open(
        listen: &str,
        server: &ServerAddress,
        protocol: CallProtocol,
        context: ProxyContext,
    ) -> Result<ProxyPort> {
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("cannot listen at {listen}"))?;
        let passing = Arc::new(CallPassing {
            upstream: Upstream::new(server, protocol)?,
            protocol,
            server: server.host.clone(),
            recorder: context.recorder,
            has_answers: context.has_answers,
        });
        Ok(ProxyPort { listener, passing, connections: context.connections })
    }

    /// Where clients reach it.
    ///
    /// # Errors
    /// The system does not tell.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Serves clients until `ended` returns, and then ends their calls.
    pub(crate) async fn serve(self, ended: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let mut ended = std::pin::pin!(ended);
        loop {
            let next = async {
                // Further clients wait in the queue of the system.
                let place = self.connections.clone().acquire_owned().await.ok()?;
                Some((self.listener.accept().await, place))
            };
            let (accepted, place) = tokio::select! {
                next = next => match next {
                    Some(next) => next,
                    None => break,
                },
                () = &mut ended => break,
            };
            let Ok((stream, _)) = accepted else {
                // The process has too many files: one of its clients must leave first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = connection(stream, self.passing.clone(), &graceful);
            tokio::spawn(async move {
                // A client that breaks its connection has no use for an error.
                let _ = connection.await;
                drop(place);
            });
        }
        let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    }
}

/// The service of a connection. It ends when the client leaves or `graceful` is shut down.
fn connection(
    stream: TcpStream,
    passing: Arc<CallPassing>,
    graceful: &GracefulShutdown,
) -> std::pin::Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>> {
    // If the option cannot be set, answers come later and are the same.
    let _ = stream.set_nodelay(true);
    let protocol = passing.protocol;
    let service = service_fn(move |request| {
        let passing = passing.clone();
        async move { Ok::<_, Infallible>(passing.pass(request).await) }
    });
    let stream = TokioIo::new(stream);
    match protocol {
        CallProtocol::Http => {
            let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(stream, service);
            Box::pin(graceful.watch(connection))
        }
        CallProtocol::Grpc => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(ASKED_EVERY)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .serve_connection(stream, service);
            Box::pin(graceful.watch(connection))
        }
    }
}

impl CallPassing {
    async fn pass(&self, request: Request<Incoming>) -> Response<ObservedBody> {
        let (mut parts, body) = request.into_parts();
        let observed = ObservedCall::begin(&self.recorder, self.protocol, &parts);
        remove_those_of_connection(&mut parts.headers);
        let body = match &observed {
            Some(call) => call.request_body(&parts, body),
            None => ObservedBody::passed_on(body),
        };
        match self.upstream.send(parts, body).await {
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                remove_those_of_connection(&mut parts.headers);
                parts.version = http::Version::default();
                let body = match &observed {
                    Some(call) if self.has_answers => call.answer_body(&parts, body),
                    _ => ObservedBody::passed_on(body),
                };
                Response::from_parts(parts, body)
            }
            Err(error) => self.unreachable(&with_causes(&error)),
        }
    }

    /// The answer if the server gives none.
    fn unreachable(&self, why: &str) -> Response<ObservedBody> {
        let message = format!("the server {} does not answer: {why}", self.server);
        let mut response = Response::new(ObservedBody::own(bytes::Bytes::new()));
        let headers = response.headers_mut();
        match self.protocol {
            CallProtocol::Http => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let body = serde_json::json!({ "error": message }).to_string();
                *response.body_mut() = ObservedBody::own(body.into());
                *response.status_mut() = StatusCode::BAD_GATEWAY;
            }
            CallProtocol::Grpc => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert("grpc-status", UNAVAILABLE);
                let message = utf8_percent_encode(&message, NON_ALPHANUMERIC).to_string();
                if let Ok(message) = HeaderValue::from_str(&message) {
                    headers.insert("grpc-message", message);
                }
            }
        }
        response
    }
}
