//! What a client must complete before its first request: TLS, or the beginning of HTTP/2.
use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;

use super::{drain::Drain, tls::TlsPort};

/// How long a handshake may take after the server has begun to stop.
const LAST_HANDSHAKES: Duration = Duration::from_millis(20);

/// Awaits a handshake. `None` if it takes longer than `limit`, or the server stops meanwhile.
pub(crate) async fn handshake_in_time<T>(
    limit: Option<Duration>,
    drain: &Drain,
    handshake: impl Future<Output = T>,
) -> Option<T> {
    let done = async {
        match limit {
            Some(limit) => timeout(limit, handshake).await.ok(),
            None => Some(handshake.await),
        }
    };
    let stopped = async {
        drain.begun().await;
        // A handshake that has begun may end, and its first request is answered.
        sleep(LAST_HANDSHAKES).await;
    };
    tokio::select! {
        done = done => done,
        () = stopped => None,
    }
}

/// Encrypts a connection. `None` if the client does not complete the handshake: the connection is closed.
pub(crate) async fn encrypted<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: &TlsPort,
    limit: Option<Duration>,
    drain: &Drain,
) -> Option<TlsStream<S>> {
    match handshake_in_time(limit, drain, tls.acceptor().accept(stream)).await? {
        Ok(stream) => Some(stream),
        Err(error) => {
            log::debug!("a connection failed to become encrypted: {error}");
            None
        }
    }
}
