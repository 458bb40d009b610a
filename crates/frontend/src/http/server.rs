//! Connections: accepting, serving, closing.
use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::CONNECTION};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use inference::Error;
use tokio::{net::TcpStream, task::JoinSet};

use super::{
    body::ResponseBody,
    header_case::{NameRecorder, RecentHeaderNames},
};
use crate::{
    drain::{Drain, OpenConnection},
    inline_wake::with_inline_wake,
};

/// A header block may be this long: as much as the reference bears.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// A header block may have this many lines.
const MAX_HEADERS: usize = 256;

/// How long the accept loop rests when the system has no more descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// Whatever answers requests.
pub trait Respond: Send + Sync + 'static {
    /// Answers one request. Dropped if the client goes away meanwhile.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<ResponseBody>> + Send;

    /// Whether it needs header names as the client wrote them.
    fn reads_names(&self) -> bool {
        false
    }
}

/// How long a connection may do nothing before it is closed (P-W41): at least this long, at most twice. Nothing is a
/// connection between requests or within a header block; a request that is being answered keeps it open.
pub const IDLE: Duration = Duration::from_secs(3600);

/// How long an idle connection stays open when the server stops: a request that was on its way by then is still answered,
/// as the last of its connection, instead of being met by a reset.
const LAST_CALL: Duration = Duration::from_millis(20);

/// Serves connections of a bound listener until `drain` begins and the last of them has closed.
///
/// Idle connections close 20 ms later (P-W24), others after their answer. Dropping the
/// future closes all of them.
///
/// # Errors
/// INTERNAL if the listener cannot be used.
pub async fn serve<S: Respond>(
    listener: std::net::TcpListener,
    service: Arc<S>,
    drain: Drain,
    idle: Duration,
) -> Result<(), Error> {
    let unusable = |error| Error::internal(format!("cannot accept connections: {error}"));
    listener.set_nonblocking(true).map_err(unusable)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(unusable)?;
    let mut connections = JoinSet::new();
    let mut begun = pin!(drain.begun());
    loop {
        tokio::select! {
            // Whoever knocks after the beginning stays outside.
            biased;
            () = &mut begun => break,
            Some(closed) = connections.join_next() => report(closed),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(with_inline_wake(connection(stream, service.clone(), drain.clone(), idle)));
                }
                Err(error) => {
                    log::warn!("failed to accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            },
        }
    }
    drop(listener);
    while let Some(closed) = connections.join_next().await {
        report(closed);
    }
    Ok(())
}

fn report(closed: Result<(), tokio::task::JoinError>) {
    if let Err(error) = closed {
        log::error!("an HTTP connection ended abnormally: {error}");
    }
}

async fn connection<S: Respond>(stream: TcpStream, service: Arc<S>, drain: Drain, idle: Duration) {
    let _open: OpenConnection = drain.enter();
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!("failed to set TCP_NODELAY: {error}");
    }
    let activity = Arc::new(Activity::default());
    let recent = service.reads_names().then(Arc::<RecentHeaderNames>::default);
    let stream = NameRecorder::new(stream, recent.clone());
    let answer = service_fn(|mut request: Request<Incoming>| {
        if let Some(recent) = &recent {
            request.extensions_mut().insert(recent.clone());
        }
        let (service, busy, drain) = (service.clone(), activity.begin(), drain.clone());
        async move {
            let mut response = service.respond(request).await.map(|body| body.holding(busy));
            // The connection may not have been told yet, but the client is.
            if drain.has_begun() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .auto_date_header(false)
        .title_case_headers(true)
        .max_header_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        // Our own, cheaper, watch over idle connections takes its place.
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), answer);
    let mut served = pin!(served);
    let mut last_call = pin!(async {
        drain.begun().await;
        tokio::time::sleep(LAST_CALL).await;
    });
    let mut told = false;
    let mut rounds = 0;
    let mut watch = pin!(tokio::time::sleep(idle));
    loop {
        tokio::select! {
            // The usual wake-up is for the connection.
            biased;
            ended = &mut served => {
                if let Err(error) = ended {
                    log::debug!("HTTP connection ended: {error}");
                }
                return;
            }
            () = &mut last_call, if !told => {
                told = true;
                served.as_mut().graceful_shutdown();
            }
            () = &mut watch => {
                if activity.is_idle_since(rounds) {
                    return;
                }
                rounds = activity.rounds();
                watch.as_mut().reset(tokio::time::Instant::now() + idle);
            }
        }
    }
}

/// What a connection has been doing.
#[derive(Debug, Default)]
struct Activity {
    /// Requests begun plus requests ended.
    rounds: AtomicUsize,
    busy: AtomicUsize,
}

/// A request that is being answered, up to the last byte of its body.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    fn begin(self: &Arc<Self>) -> Busy {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }

    fn is_idle_since(&self, rounds: usize) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && self.rounds() == rounds
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.rounds.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
