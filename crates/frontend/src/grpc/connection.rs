//! The connections of the gRPC port: accepted, encrypted if so configured, served over HTTP/2, ended in an orderly way.
//!
//! What hyper cannot do and therefore is not offered: counting or pacing the pings that clients send
//! (`grpc-http2-min-recv-ping-interval-without-data`, `-max-ping-strikes`) and withholding our own from connections
//! without calls (`grpc-keepalive-permit-without-calls=false`, `-max-pings-without-data`).
use std::{future::pending, io, pin::pin, sync::Arc, time::Duration};

use hyper::{
    rt::{Read, Write},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use inference::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{service, state::GrpcState};
use crate::inline_wake::with_inline_wake;

/// How long a client may take to begin to speak.
const HANDSHAKE: Duration = Duration::from_secs(120);

/// After a failed accept, mostly for want of file descriptors, so long passes before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What every HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The answer to clients that speak HTTP/1.
const NOT_HTTP2: &[u8] = b"HTTP/1.1 415 Unsupported Media Type\r\ncontent-type: text/plain\r\n\
    content-length: 39\r\nconnection: close\r\n\r\nthis port speaks only gRPC over HTTP/2\n";

/// Serves the port until the drain of `state` has begun and every connection has ended. Dropping the future ends them at
/// once.
///
/// # Errors
/// INTERNAL if the listener cannot be used.
pub async fn serve(listener: std::net::TcpListener, state: Arc<GrpcState>) -> Result<(), Error> {
    let unusable = |error| Error::internal(format!("cannot accept connections: {error}"));
    let listener = TcpListener::from_std(listener).map_err(unusable)?;
    let mut connections = JoinSet::new();
    let mut count = 0;
    // Each branch is cancel-safe.
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    count += 1;
                    connections.spawn(with_inline_wake(connection(stream, state.clone(), count)));
                }
                Err(error) => {
                    log::warn!("failed to accept a gRPC connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    log::error!("a gRPC connection was lost: {error}");
                }
            }
            () = state.drain.begun() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// The `count`-th connection from its first byte to its last.
async fn connection(stream: TcpStream, state: Arc<GrpcState>, count: u64) {
    let _open = state.drain.enter();
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!("failed to prepare a gRPC connection: {error}");
        return;
    }
    match &state.tls {
        Some(acceptor) => match in_time(&state, acceptor.accept(stream)).await {
            Some(Ok(stream)) => serve_calls(TokioIo::new(stream), &state, count).await,
            Some(Err(error)) => log::debug!("a gRPC connection failed to become encrypted: {error}"),
            None => {}
        },
        None => match in_time(&state, speaks_http2(&stream)).await {
            Some(Ok(true)) => serve_calls(TokioIo::new(stream), &state, count).await,
            Some(Ok(false)) => send_away(stream).await,
            Some(Err(_)) | None => {}
        },
    }
}

/// What a client must do before its first call, unless it takes too long or the server stops meanwhile.
async fn in_time<T>(state: &GrpcState, handshake: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = timeout(HANDSHAKE, handshake) => done.ok(),
        () = state.drain.begun() => None,
    }
}

/// Whether the client begins as HTTP/2 does. Takes nothing from the connection.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut begin).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if count == begin.len() || begin[..count] != PREFACE[..count] {
            return Ok(begin == *PREFACE);
        }
        // A part of it alone: there is no event for "more than that".
        sleep(Duration::from_millis(5)).await;
    }
}

/// Tells an HTTP/1 client that it is wrong here, and waits a moment so that it can read that.
async fn send_away(mut stream: TcpStream) {
    let told = async {
        stream.write_all(NOT_HTTP2).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The client may keep the connection open or flood it: either way it is closed after a second.
    let _ = timeout(Duration::from_secs(1), told).await;
}

/// Serves the calls of a connection. When it is old or the server stops, it takes no more; those under way are finished.
async fn serve_calls<I>(io: I, state: &Arc<GrpcState>, count: u64)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let service = service_fn(|request| service::answer(state.clone(), request));
    let mut connection = pin!(builder(state).serve_connection(io, service));
    let options = &state.options;
    let age = options.max_connection_age.map(|age| age.mul_f64(jitter(count)));
    let grace = tokio::select! {
        ended = connection.as_mut() => return note(ended),
        () = state.drain.begun() => None,
        () = after(age) => options.max_connection_age_grace,
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection => note(ended),
        () = after(grace) => log::debug!("a gRPC connection was closed: its grace is over"),
    }
}

fn note(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        log::debug!("a gRPC connection failed: {error}");
    }
}

/// Returns after that time, or never.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// From 0.9 to 1.1, evenly for successive connections.
fn jitter(count: u64) -> f64 {
    // Multiples of the golden ratio fall evenly into the unit interval.
    let golden = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    0.9 + 0.2 * (golden >> 11) as f64 / (1_u64 << 53) as f64
}

/// Large frames and windows: a tensor crosses in few pieces. The windows are also what a client can make us hold per
/// connection.
fn builder(state: &GrpcState) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_frame_size(1 << 20)
        .initial_stream_window_size(32 << 20)
        .initial_connection_window_size(64 << 20)
        .max_send_buf_size(4 << 20)
        .max_concurrent_streams(1 << 16)
        // A client may give up many calls at once, for example when a shared deadline passes.
        .max_pending_accept_reset_streams(1024)
        .auto_date_header(false)
        .keep_alive_interval(state.options.keepalive_time)
        .keep_alive_timeout(state.options.keepalive_timeout);
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
    fn the_answer_to_http1_tells_its_length() {
        let text = std::str::from_utf8(NOT_HTTP2).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
