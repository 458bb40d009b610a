//! The connections of the gRPC port: TLS if configured, HTTP/2, and an orderly end.
use std::{future::pending, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{sleep, timeout},
};
use vocabulary::Error;

use super::{
    call_tasks::{CallCounter, CallExecutor},
    grpc_context::GrpcContext,
    service,
    transport::{PREFACE, Transport, go_away},
    windows::ConnectionWindows,
};
use crate::port::{
    ClientStream, Drain, Listener, NoPermit, Port, accept, answer_and_close, encrypted, handshake_in_time,
    idle_while_draining,
};

/// The answer to clients that speak HTTP/1.
const NOT_HTTP2: &[u8] = b"HTTP/1.1 415 Unsupported Media Type\r\ncontent-type: text/plain\r\n\
    content-length: 39\r\nconnection: close\r\n\r\nthis port speaks only gRPC over HTTP/2\n";

/// How long such a client may take to read the answer.
const NOT_HTTP2_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an idle connection may take to end. It has no calls, but the client may start one at the same time.
const IDLE_GRACE: Duration = Duration::from_secs(60);

/// How long a connection stays open that begins after the stop of the server was announced. A client that knows no other
/// server connects again and again; it must not need a connection for each call.
const LATE_CONNECTION_AGE: Duration = Duration::from_secs(1);

/// Serves the port until the drain of `endpoint` has begun and every connection has ended. If all permits of the port are
/// taken, the server refuses a new connection: its calls end with UNAVAILABLE. Dropping the future ends all connections
/// at once.
///
/// # Errors
/// INTERNAL if the listener cannot be used.
pub async fn serve(listener: Listener, endpoint: Arc<GrpcContext>) -> Result<(), Error> {
    let port = Port {
        name: "gRPC",
        drain: endpoint.drain.clone(),
        permits: endpoint.options.permits.clone(),
        // A client that expects TLS could not read the answer.
        refusal: if endpoint.options.tls.is_some() { |_| Vec::new() } else { refusal },
    };
    let count = std::cell::Cell::new(0);
    accept(listener, port, move |stream| {
        count.set(count.get() + 1);
        connection(stream, endpoint.clone(), count.get())
    })
    .await
}

/// The answer to a connection that exceeds the limit: the settings that begin each connection, and the reason why the
/// connection ends.
fn refusal(no_permit: NoPermit) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    [&SETTINGS[..], &go_away(0, &no_permit.to_string())].concat()
}

/// Serves the `count`-th connection from its first byte to its last.
async fn connection(stream: ClientStream, endpoint: Arc<GrpcContext>, count: u64) {
    if let Err(error) = stream.prepare(endpoint.options.limits.write_timeout) {
        log::debug!("failed to prepare a gRPC connection: {error}");
        return;
    }
    let limit = endpoint.options.limits.header_timeout;
    let accepted = AcceptedConnection {
        count,
        is_unix: matches!(stream, ClientStream::Unix(_)),
        peer: endpoint.options.access_log.as_ref().and_then(|_| stream.peer()),
    };
    if let Some(tls) = &endpoint.options.tls {
        // Boxed, so that connections without TLS have a smaller future.
        let serving = Box::pin(async {
            if let Some(stream) = encrypted(stream, tls, limit, &endpoint.drain).await {
                serve_http2(stream, accepted, &endpoint).await;
            }
        });
        return serving.await;
    }
    serve_http2(stream, accepted, &endpoint).await;
}

/// Serves a client that speaks HTTP/2, and tells any other that it must. A client of TLS may have agreed on no protocol.
async fn serve_http2<S>(stream: S, accepted: AcceptedConnection, endpoint: &Arc<GrpcContext>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = endpoint.options.limits.header_timeout;
    match handshake_in_time(limit, &endpoint.drain, speaks_http2(stream)).await {
        Some(Ok((stream, true))) => serve_calls(stream, accepted, endpoint).await,
        Some(Ok((stream, false))) => answer_and_close(stream, NOT_HTTP2, NOT_HTTP2_TIMEOUT).await,
        Some(Err(_)) | None => {}
    }
}

/// Tells whether the client sends the preface of HTTP/2. If so, the function has read exactly the preface.
async fn speaks_http2<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(S, bool)> {
    let mut begin = [0; PREFACE.len()];
    let mut have = 0;
    while have < begin.len() {
        match stream.read(&mut begin[have..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => have += count,
        }
        if begin[..have] != PREFACE[..have] {
            return Ok((stream, false));
        }
    }
    Ok((stream, true))
}

/// What is known of a connection before its first byte.
#[derive(Clone, Copy)]
struct AcceptedConnection {
    /// So many connections were accepted, with this one.
    count: u64,
    is_unix: bool,
    /// The client, if it is logged.
    peer: Option<SocketAddr>,
}

/// Serves the calls of a connection whose preface was read already. When the connection is
/// too old or idle, or the stop of the server is announced, the connection accepts no more calls and finishes the calls in
/// flight.
async fn serve_calls<S>(stream: S, accepted: AcceptedConnection, endpoint: &Arc<GrpcContext>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let AcceptedConnection { count, is_unix, peer } = accepted;
    let options = &endpoint.options;
    let calls = Arc::<CallCounter>::default();
    let transport = Transport::new(stream, Bytes::from_static(PREFACE), endpoint, calls.clone());
    let io = TokioIo::new(if is_unix { transport.mending_authority() } else { transport });
    let executor = CallExecutor {
        calls: calls.clone(),
        write_timeout: options.limits.write_timeout,
        drain: endpoint.drain.clone(),
    };
    let age = options.max_connection_age.map(|age| age.mul_f64(jitter(count)));
    let service = service_fn(|request: Request<Incoming>| service::answer(endpoint.clone(), request, peer));
    let windows = endpoint.windows.open();
    let mut connection = pin!(builder(endpoint, executor, &windows).serve_connection(io, service));
    let grace = tokio::select! {
        ended = connection.as_mut() => return note(ended),
        () = told_to_go(&endpoint.drain) => None,
        () = after(age) => options.max_connection_age_grace,
        () = idle(&calls, options.limits.idle_timeout) => Some(IDLE_GRACE),
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection => note(ended),
        // hyper closes the connection when the client has answered a ping. A client that has gone never does. Calls
        // whose requests do not come end by themselves.
        () = idle_while_draining(&endpoint.drain, || calls.open() > 0, || calls.sent()) => {
            log::debug!("a gRPC connection was closed: the server stops, and the client has no call");
        }
        () = after(grace) => log::debug!("a gRPC connection was closed: its grace is over"),
    }
}

/// Returns when the client of a connection that begins now must go to another server.
async fn told_to_go(drain: &Drain) {
    if drain.is_announced() {
        // The outcome does not matter: the client must go in either case.
        let _ = timeout(LATE_CONNECTION_AGE, drain.begun()).await;
    }
    drain.announced().await;
}

/// Returns when the connection has had no call for at least `limit` and at most twice `limit`. Never returns if `limit`
/// is `None`.
async fn idle(calls: &CallCounter, limit: Option<Duration>) {
    let mut seen = 0;
    loop {
        after(limit).await;
        let begun = calls.begun();
        if calls.open() == 0 && begun == seen {
            return;
        }
        seen = begun;
    }
}

fn note(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        log::debug!("a gRPC connection failed: {error}");
    }
}

/// Returns after that time. Never returns if `time` is `None`.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// A factor from 0.9 to 1.1, evenly distributed over successive connections.
fn jitter(count: u64) -> f64 {
    // Multiples of the golden ratio are evenly distributed over the unit interval.
    let golden = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    0.9 + 0.2 * (golden >> 11) as f64 / (1_u64 << 53) as f64
}

/// Configures large frames and windows, so that a tensor is sent in few pieces. The windows also bound the bytes that a
/// client can make the server hold for the connection without a reservation.
fn builder(
    endpoint: &GrpcContext,
    executor: CallExecutor,
    windows: &ConnectionWindows,
) -> http2::Builder<CallExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_frame_size(windows.frame())
        // Larger than what a call may have, so that the call gets a status of gRPC.
        .max_header_list_size(windows.head())
        .initial_stream_window_size(windows.stream())
        .initial_connection_window_size(windows.connection())
        .max_send_buf_size(4 << 20)
        .max_concurrent_streams(endpoint.options.max_concurrent_streams)
        // A client may cancel many calls at once, for example when a shared deadline passes.
        .max_pending_accept_reset_streams(1024)
        .auto_date_header(false);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_at_different_ages() {
        let jitters: Vec<f64> = (0..1000).map(jitter).collect();
        assert!(jitters.iter().all(|jitter| (0.9..1.1).contains(jitter)));
        let late = jitters.iter().filter(|&&jitter| jitter > 1.0).count();
        assert!((450..550).contains(&late), "{late}");
    }

    #[test]
    fn the_response_to_http1_contains_its_length() {
        let text = std::str::from_utf8(NOT_HTTP2).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
