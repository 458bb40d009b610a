//! HTTP connections: how the server accepts, serves and closes them.
use std::{
    convert::Infallible,
    future::{Future, pending, poll_fn},
    mem,
    net::SocketAddr,
    ops::ControlFlow,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, Uri,
    header::{CONNECTION, EXPECT},
};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep},
};
use vocabulary::{ByteBudget, Error};

use super::{
    activity::ConnectionActivity,
    body::{self, ResponseBody},
    call::HttpCall,
    header_case::{NameRecorder, RecentHeaderNames, WrittenHead},
    origin_rules::{OriginRules, RequestSender, permit_reading, preflight_reply},
    port_options::PortOptions,
    reply::end_line,
};
use crate::{
    access::{AccessLine, AccessLog, ApiKeys},
    error,
    port::{
        ClientLimits, ClientStream, ClientTimer, Drain, HalfCloseStream, Listener, NoPermit, Port, Readable,
        TimedStream, WriteTimeout, accept, connection_has_freed, encrypted, idle_while_draining, linger,
        tls::TlsPort,
    },
};

/// The longest header block, in bytes. The limit is the reference's.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// The most bytes that hyper reads at once: each connection keeps so much memory after a long body. A head must fit.
const READ_BUFFER: usize = 2 * MAX_HEADER_BYTES;

/// About what hyper holds for a connection: a buffer for reading, one for writing, and headers.
const HELD_BY_HYPER: usize = 20 << 10;

/// The most lines of a header block.
const MAX_HEADERS: usize = 256;

/// A service that answers requests.
pub trait HttpEndpoint: Send + Sync + 'static {
    /// Answers one request, and need not read its body to the end. The future is dropped if the client goes meanwhile.
    fn answer(&self, call: &mut HttpCall<'_>) -> impl Future<Output = Response<ResponseBody>> + Send;

    /// Where the server counts what it stores if the service needs header names as the client wrote them. `None`: it does
    /// not need them.
    fn name_budget(&self) -> Option<&Arc<ByteBudget>> {
        None
    }

    /// Where requests are logged, if they are.
    fn access_log(&self) -> Option<&Arc<dyn AccessLog>> {
        None
    }

    /// The keys that clients need. `None`: they need none.
    fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        None
    }

    /// The name of the port for the log.
    fn port_name(&self) -> &'static str {
        "HTTP"
    }
}

/// How long an idle connection stays open when the server stops. A request that is on its way at that time is still
/// answered, as the last of its connection. Without this delay the client would see a reset.
const LAST_CALL: Duration = Duration::from_millis(20);

/// Serves the connections of a bound listener until `drain` begins and the last connection has closed.
///
/// From the announcement of `drain` on, each response has `Connection: close` and is the last of its connection. Idle
/// connections close 20 ms after the beginning of `drain` (P-W24), and those whose client stalls within seconds. Busy
/// connections close after their answer. If all permits of `options` are taken, a new connection gets one answer with status
/// 503 and is closed; with TLS it is closed without an answer. Requests that the rules of `options` refuse do not reach
/// `service`. Dropping the future closes all connections.
///
/// # Errors
/// INTERNAL if the listener cannot be used.
pub async fn serve<S: HttpEndpoint>(
    listener: Listener,
    service: Arc<S>,
    drain: Drain,
    options: PortOptions,
) -> Result<(), Error> {
    let PortOptions { limits, permits, tls, origin_rules } = options;
    // A client that expects TLS could not read the answer.
    let refusal = if tls.is_some() { |_| Vec::new() } else { refusal };
    let port = Port { name: service.port_name(), drain: drain.clone(), permits, refusal };
    let entrance = Arc::new(Entrance { service, drain, limits, origin_rules });
    accept(listener, port, move |stream| connection(stream, tls.clone(), entrance.clone())).await
}

/// What each request of a port passes: the rules for web pages, and then the service.
struct Entrance<S> {
    service: Arc<S>,
    drain: Drain,
    limits: ClientLimits,
    origin_rules: Arc<OriginRules>,
}

/// A request as a connection has read it.
struct ReceivedRequest {
    request: Request<Incoming>,
    /// The address of the client, if requests are logged.
    peer: Option<SocketAddr>,
    /// The head as the client wrote it, if the service needs it.
    written_head: Option<WrittenHead>,
}

impl<S: HttpEndpoint> Entrance<S> {
    async fn answer(&self, received: ReceivedRequest) -> Response<ResponseBody> {
        if self.origin_rules.concern(received.request.headers()) {
            // Boxed, so that other requests have a smaller future.
            return Box::pin(self.answer_checked(received)).await;
        }
        self.call_service(received).await
    }

    async fn answer_checked(&self, received: ReceivedRequest) -> Response<ResponseBody> {
        match self.origin_rules.check(&received.request) {
            Ok(RequestSender::Direct) => self.call_service(received).await,
            Ok(RequestSender::ForeignPage(origin)) => {
                let mut reply = match preflight_reply(&received.request) {
                    Some(reply) => reply,
                    None => self.call_service(received).await,
                };
                permit_reading(&mut reply, origin);
                reply
            }
            Err(refusal) => {
                let ReceivedRequest { request, peer, .. } = received;
                let mut reply = refusal.reply();
                let line = self.begin_line(request.method(), request.uri(), peer);
                log::debug!(
                    "HTTP request refused: {} {}: {refusal:?}",
                    request.method(),
                    request.uri().path()
                );
                let (head, mut body) = request.into_parts();
                self.read_rest(&head.headers, &mut body, &mut reply).await;
                end_line(line, reply)
            }
        }
    }

    async fn call_service(&self, received: ReceivedRequest) -> Response<ResponseBody> {
        let ReceivedRequest { request, peer, written_head } = received;
        let (mut head, mut body) = request.into_parts();
        let mut line = self.begin_line(&head.method, &head.uri, peer);
        if let Some(line) = &mut line {
            line.set_request_bytes(body.size_hint().lower());
        }
        let mut call = HttpCall::new(&mut head, &mut body, self.service.api_keys());
        call.written_head = written_head;
        call.facts = match &line {
            Some(line) => Some(line.facts().clone()),
            None => error::is_noted().then(Arc::default),
        };
        let mut reply = self.service.answer(&mut call).await;
        self.read_rest(&head.headers, &mut body, &mut reply).await;
        end_line(line, reply)
    }

    /// Reads the rest of a body, so that the next request follows. If there is much of it, or the body is broken, the reply
    /// is the last of its connection.
    async fn read_rest(&self, headers: &HeaderMap, body: &mut Incoming, reply: &mut Response<ResponseBody>) {
        let waits = headers.contains_key(EXPECT);
        if !reply.headers().contains_key(CONNECTION)
            && !body::read_rest(body, waits, self.limits.body_pace, &self.drain).await
        {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Begins the line of a request in the access log, if it has one.
    fn begin_line(&self, method: &Method, uri: &Uri, peer: Option<SocketAddr>) -> Option<Box<AccessLine>> {
        AccessLine::begin(self.service.access_log(), "http", peer, || format!("{method} {}", uri.path()))
    }
}

/// The answer to a connection that exceeds the limit.
fn refusal(no_permit: NoPermit) -> Vec<u8> {
    let body = error::body(&no_permit.to_string());
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// Serves a connection from its first byte to its last.
async fn connection<S: HttpEndpoint>(
    stream: ClientStream,
    tls: Option<Arc<TlsPort>>,
    entrance: Arc<Entrance<S>>,
) {
    if let Err(error) = stream.prepare(entrance.limits.write_timeout) {
        log::debug!("failed to prepare an HTTP connection: {error}");
    }
    let peer = entrance.service.access_log().and_then(|_| stream.peer());
    let stream = HalfCloseStream::new(stream);
    let Some(tls) = tls else { return serve_client(stream, entrance, peer).await };
    // Boxed, so that connections without TLS have a smaller future.
    Box::pin(async move {
        let header_timeout = entrance.limits.header_timeout;
        if let Some(stream) = encrypted(stream, &tls, header_timeout, &entrance.drain).await {
            serve_client(stream, entrance, peer).await;
        }
    })
    .await;
}

async fn serve_client<S: HttpEndpoint>(
    stream: impl AsyncRead + AsyncWrite + Readable + Send + Unpin + 'static,
    entrance: Arc<Entrance<S>>,
    peer: Option<SocketAddr>,
) {
    let activity = Arc::new(ConnectionActivity::default());
    let (limits, drain) = (entrance.limits, entrance.drain.clone());
    let write_timeout = WriteTimeout::new(limits.write_timeout, drain.clone());
    let mut stream = TimedStream::new(stream, write_timeout, activity.stream.clone());
    loop {
        // Boxed, so that a connection without a request has a small future.
        let served = Box::pin(serve_requests(&mut stream, entrance.clone(), peer, activity.clone())).await;
        connection_has_freed(HELD_BY_HYPER);
        match served {
            ControlFlow::Continue(()) if next_request(&mut stream, limits, &drain).await => {}
            ControlFlow::Continue(()) | ControlFlow::Break(false) => return,
            ControlFlow::Break(true) => return Box::pin(linger(&mut stream, &drain)).await,
        }
    }
}

/// Waits for the next request of a connection, for its end or for that of the server. Returns false if the connection has been
/// idle for too long.
async fn next_request(stream: &mut impl Readable, limits: ClientLimits, drain: &Drain) -> bool {
    let idle = async {
        match limits.idle_timeout {
            // It has been idle before.
            Some(limit) => sleep(limit.saturating_sub(limits.buffers_kept)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        () = poll_fn(|context| stream.poll_readable(context)) => true,
        () = drain.begun() => true,
        () = idle => {
            log::debug!("an HTTP connection was closed: {IDLE}");
            false
        }
    }
}

/// Serves the requests of a connection to its last answer, or until there are none for [`ClientLimits::buffers_kept`]: then the
/// connection goes on. Breaks with true if the client may still send what the last answer does not wait for.
async fn serve_requests<S: HttpEndpoint>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    entrance: Arc<Entrance<S>>,
    peer: Option<SocketAddr>,
    activity: Arc<ConnectionActivity>,
) -> ControlFlow<bool> {
    let (limits, drain) = (entrance.limits, entrance.drain.clone());
    let budget = entrance.service.name_budget().cloned();
    let recent = budget.map(|budget| Arc::new(RecentHeaderNames::new(budget)));
    let stream = NameRecorder::new(stream, recent.clone().map(|recent| (recent, activity.clone())));
    let answer = service_fn(|request: Request<Incoming>| {
        let written_head = recent.as_ref().map(|recent| recent.take());
        let received = ReceivedRequest { request, peer, written_head };
        let (entrance, busy) = (entrance.clone(), activity.begin());
        async move {
            let response = entrance.answer(received).await;
            if response.headers().contains_key(CONNECTION) {
                busy.leave_body();
            }
            let mut response = response.map(|body| body.holding(busy));
            // After this response hyper closes the connection. The client learns why its next request needs another one.
            if entrance.drain.is_announced() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .auto_date_header(false)
        .title_case_headers(true)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(READ_BUFFER)
        .max_headers(MAX_HEADERS)
        // [`HalfCloseStream`] knows which clients have gone.
        .half_close(true)
        // [`Watch`] replaces hyper's time limit: it has no cost for heads that arrive completely, and it detects idle
        // connections.
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), answer);
    let mut served = pin!(served);
    let mut drain_begun = pin!(drain.begun());
    // Both begin with the drain. Until then a wake-up does not poll them.
    let mut last_call = pin!(async { sleep(LAST_CALL).await });
    // The body of a request that does not come ends the request. Answers that wait end by the limit for writes.
    let mut alone = pin!(idle_while_draining(&drain, || !activity.is_idle(), || activity.writes()));
    let (mut is_draining, mut is_shutdown_announced) = (false, false);
    let mut watch = Watch::new(&activity, limits);
    loop {
        tokio::select! {
            // Most wake-ups are for the connection. The watch checks the state that the connection leaves.
            biased;
            ended = &mut served => {
                return ControlFlow::Break(match ended {
                    Ok(()) => activity.leaves_body(),
                    Err(error) => {
                        log::debug!("HTTP connection ended: {error}");
                        // hyper has answered what is no request.
                        error.is_parse()
                    }
                });
            }
            () = &mut drain_begun, if !is_draining => is_draining = true,
            () = &mut last_call, if is_draining && !is_shutdown_announced => {
                is_shutdown_announced = true;
                served.as_mut().graceful_shutdown();
            }
            () = &mut alone, if is_draining => {
                log::debug!("an HTTP connection was closed: the server stops, and the client has no request");
                return ControlFlow::Break(false);
            }
            seen = poll_fn(|context| watch.poll(context)) => match seen {
                ControlFlow::Break(late) => {
                    log::debug!("an HTTP connection was closed: {late}");
                    return ControlFlow::Break(false);
                }
                ControlFlow::Continue(()) if is_draining => {}
                ControlFlow::Continue(()) => return ControlFlow::Continue(()),
            }
        }
    }
}

/// Watches a connection that waits for its client.
struct Watch<'a> {
    activity: &'a ConnectionActivity,
    limits: ClientLimits,
    /// Runs while a part of a head has arrived. The number is the round of that head.
    head: Option<(usize, ClientTimer)>,
    /// Expires once in each idle time-out. Then the watch checks whether the connection was active since.
    idle: Option<Pin<Box<Sleep>>>,
    /// The round at the last check.
    seen: usize,
    /// Expires once in each [`ClientLimits::buffers_kept`], and the round then.
    buffers: (Pin<Box<Sleep>>, usize),
}

/// Why an idle connection is closed.
const IDLE: &str = "it was idle";

impl<'a> Watch<'a> {
    fn new(activity: &'a ConnectionActivity, limits: ClientLimits) -> Self {
        let idle = limits.idle_timeout.map(|idle| Box::pin(sleep(idle)));
        let buffers = (Box::pin(sleep(limits.buffers_kept)), activity.rounds());
        Self { activity, limits, head: None, idle, seen: 0, buffers }
    }

    /// Ready with the reason when the server must close the connection, or when nothing has come for
    /// [`ClientLimits::buffers_kept`] and nothing waits for the client. The caller polls it after the connection.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ControlFlow<&'static str>> {
        if self.poll_head(context).is_ready() {
            return Poll::Ready(ControlFlow::Break("the request head did not arrive in time"));
        }
        if self.poll_idle(context).is_ready() {
            return Poll::Ready(ControlFlow::Break(IDLE));
        }
        self.poll_no_request(context).map(ControlFlow::Continue)
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limits.header_timeout else { return Poll::Pending };
        if !self.activity.is_reading_head() {
            self.head = None;
            return Poll::Pending;
        }
        let round = self.activity.rounds();
        match &mut self.head {
            Some((begun, timer)) if *begun == round => timer.poll(context),
            head => head.insert((round, ClientTimer::new(limit))).1.poll(context),
        }
    }

    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (Some(timer), Some(limit)) = (&mut self.idle, self.limits.idle_timeout) else {
            return Poll::Pending;
        };
        while timer.as_mut().poll(context).is_ready() {
            let rounds = self.activity.rounds();
            if self.activity.is_idle() && self.seen == rounds {
                return Poll::Ready(());
            }
            self.seen = rounds;
            timer.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }

    fn poll_no_request(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (timer, seen) = &mut self.buffers;
        while timer.as_mut().poll(context).is_ready() {
            timer.as_mut().reset(Instant::now() + self.limits.buffers_kept);
            let before = mem::replace(seen, self.activity.rounds());
            if self.activity.is_between_requests() && before == *seen {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
