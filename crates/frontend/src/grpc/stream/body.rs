//! `ModelStreamInfer`: any number of requests and any number of responses in one call.
//!
//! The body of the reply does all the work. hyper polls the body for the next frame. In that poll the body reads
//! requests, starts them and collects responses. The call has no other task than hyper's. When the call is cancelled,
//! dropping the body cancels every request.
//!
//! Responses of models that are not decoupled are sent in the order of their requests (P-W46). The body polls only the
//! first of these requests. The other requests continue to run, and their responses wait. The first response answers
//! such a request: later responses and errors are dropped, as in the reference. Responses of decoupled models are sent
//! as they come. If a client reads slowly, the body is not polled, so it reads no further requests.
//!
//! A message that takes long to decode is decoded in the pool. Until then the body reads no later message, so requests
//! start in the order in which they arrive.
//!
//! When the server stops, it refuses later requests, except for those that continue a running sequence. The call ends
//! when no request is in flight, so that a client that keeps its call open does not delay the shutdown (P-W24). A call
//! with running sequences also waits for their ends, until the server gives up waiting for sequences.
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use futures_util::{StreamExt, stream::SelectAll};
use host::now;
use http_body::Frame;
use hyper::body::Incoming;
use inference::{Request, Timestamp};
use kserve::lengths;
use vocabulary::{ByteReservation, Error, Name};

use super::{
    carried_sequences::CarriedSequences,
    refusals::{PendingRefusal, Refusals},
    streamed_request::{StreamMessage, StreamedRequest, code_of},
};
use crate::{
    access::AccessLine,
    chunks::Chunks,
    counted_bytes::UNCOUNTED,
    decode_pool::PooledResult,
    grpc::{
        call::CallHead,
        cancellation::CallWatch,
        compression::{Compressing, Compressor},
        deadline::CallDeadline,
        grpc_context::GrpcContext,
        message::{
            decode::{self, InferMessage},
            framing::{MessageError, Messages, ReceivedMessage, RefusedMessage},
            wire::Malformed,
        },
        pieces::Pieces,
        request::{self, RequestContext},
        status::Status,
    },
    load_report,
    tracing::{MessageTimes, TracedSend},
};

/// The most requests of one call in flight. At this limit the body reads no more requests. The limit is high because
/// requests of a sequence may wait for others that come later on the same call.
const MAX_IN_FLIGHT: usize = 16 << 10;

/// The most requests that the body reads before it collects responses.
const READ_AT_ONCE: usize = 32;

/// Responses that are ready together are sent together, up to about this many bytes.
const SENT_AT_ONCE: usize = 32 << 10;

/// How often a call looks whether its sequences have ended while the server stops.
const SEQUENCE_TICK: Duration = Duration::from_millis(10);

/// The body of the reply.
pub(crate) struct StreamBody {
    endpoint: Arc<GrpcContext>,
    call: CallHead,
    messages: Messages<Incoming>,
    /// True while the client may send more requests.
    reading: bool,
    /// A message that the pool decodes. The body reads no other message meanwhile.
    decoding: Option<LongDecoding>,
    compressor: Option<Compressor>,
    deadline: CallDeadline,
    /// Completes when the server begins to stop, and then, if the call waits for its sequences, when they must be looked at
    /// again, or waited for no longer.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// If one of them runs, the call waits for it when the server stops.
    sequences: CarriedSequences,
    /// True if the client wants the first error of a model as the status of the call.
    errors_end_call: bool,
    /// The requests whose responses are sent in order.
    ordered: VecDeque<OrderedReply>,
    /// The requests whose responses are sent as they come, and answered requests whose later responses are dropped.
    unordered: SelectAll<StreamedRequest>,
    /// The refusals of requests to decoupled models.
    unordered_refusals: VecDeque<PendingRefusal>,
    /// Counts all refusals that are not sent yet.
    refusals: Refusals,
    /// True if `unordered` is polled before `ordered` next time.
    unordered_first: bool,
    compressing: Option<Compressing>,
    /// The collected messages that are not sent yet.
    leaving: Chunks,
    pieces: Pieces,
    /// The traces of the requests whose messages are collected.
    sending: Vec<TracedSend>,
    /// When the body began to wait for the next message, if requests are traced.
    waiting: Option<Timestamp>,
    /// The status that ends the call when everything collected has been sent.
    failure: Option<Status>,
    ended: bool,
    /// The client has given up the call.
    has_client_gone: bool,
    watch: CallWatch,
    /// The call's own bytes in the server's budget.
    _open: ByteReservation,
}

type LongDecoding = PooledResult<Result<Box<(AcceptedMessage, Request)>, Malformed>>;

/// What is known of a message when it is decoded.
struct AcceptedMessage {
    id: Name,
    /// Its size, for the access log.
    bytes: usize,
    /// The model exists and is decoupled.
    decoupled: bool,
    /// What the server keeps of the request, and the version as the client wrote it.
    decoded: Result<(RequestContext, Name), Error>,
}

/// An entry in the order of responses.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large variant")]
enum OrderedReply {
    Running(StreamedRequest),
    Refused(PendingRefusal),
}

impl StreamBody {
    /// Answers the requests in `messages`. The body is built in its box, because it is large.
    pub(crate) fn new(
        endpoint: Arc<GrpcContext>,
        call: CallHead,
        messages: Messages<Incoming>,
        granted: Option<Duration>,
        open: ByteReservation,
    ) -> Box<Self> {
        let compressor = Compressor::agreed(endpoint.options.compression, &call.headers);
        let errors_end_call = call.headers.get("triton_grpc_error").is_some_and(|value| value == "true");
        let drain = endpoint.drain.clone();
        let waiting = endpoint.options.tracer.is_on().then(now);
        let refusals = Refusals::within(endpoint.engine.inflight_bytes());
        Box::new(Self {
            endpoint,
            call,
            messages,
            reading: true,
            decoding: None,
            compressor,
            deadline: CallDeadline::after(granted),
            stopping: Box::pin(async move { drain.begun().await }),
            sequences: CarriedSequences::default(),
            errors_end_call,
            ordered: VecDeque::new(),
            unordered: SelectAll::new(),
            unordered_refusals: VecDeque::new(),
            refusals,
            unordered_first: false,
            compressing: None,
            leaving: Chunks::new(),
            pieces: Pieces::new(),
            sending: Vec::new(),
            waiting,
            failure: None,
            ended: false,
            has_client_gone: false,
            watch: CallWatch::begin("ModelStreamInferHandler", None),
            _open: open,
        })
    }

    /// hyper polls this function for the next frame.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Chunks>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.deadline.poll(context).is_ready() {
            return self.end(&Status::late());
        }
        if self.leaving.has_remaining() {
            return self.next_piece();
        }
        if let Some(work) = &mut self.compressing {
            return match ready!(Pin::new(work).poll(context)) {
                Ok(mut message) => {
                    self.compressing = None;
                    if let Err(no_room) =
                        message.count_in(|| self.endpoint.engine.inflight_bytes().reservation())
                    {
                        return self.end(&Error::from(no_room).into());
                    }
                    self.leaving = message;
                    self.next_piece()
                }
                Err(error) => self.end(&error.into()),
            };
        }
        let more_to_read = self.read(context);
        let collected = self.collect(context);
        if collected.has_remaining() {
            let Some(compressor) = self.compressor else {
                self.leaving = collected;
                return self.next_piece();
            };
            self.compressing = Some(compressor.compress(collected));
            return self.poll_frame(context);
        }
        if let Some(failure) = self.failure.take() {
            return self.end(&failure);
        }
        if !self.reading && self.in_flight() == 0 {
            return self.end(&Status::ok());
        }
        if more_to_read && !self.is_full() {
            context.waker().wake_by_ref();
        } else if self.in_flight() == 0 && self.poll_stopping(context).is_ready() {
            return self.end(&Status::stopping());
        }
        Poll::Pending
    }

    /// Ready when the server stops and the call need not wait for its sequences.
    fn poll_stopping(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.stopping.as_mut().poll(context));
            if self.endpoint.drain.are_sequences_over() || !self.sequences.run() {
                return Poll::Ready(());
            }
            let drain = self.endpoint.drain.clone();
            // A sequence may also end because its client is silent, and no request tells that.
            self.stopping = Box::pin(async move {
                let _ = tokio::time::timeout(SEQUENCE_TICK, drain.sequences_over()).await;
            });
        }
    }

    fn next_piece(&mut self) -> Poll<Option<Frame<Chunks>>> {
        let piece = self.pieces.next(&mut self.leaving);
        if !self.leaving.has_remaining() {
            // The connection takes the rest now.
            self.sending.clear();
        }
        Poll::Ready(Some(Frame::data(piece)))
    }

    /// Ends the call with these trailers. Requests that still run are cancelled.
    fn end(&mut self, status: &Status) -> Poll<Option<Frame<Chunks>>> {
        self.ended = true;
        // Whether hyper drops this body or the body learns of it first: the client has ended the call, not the server.
        if !self.has_client_gone {
            self.watch.end_call();
        }
        self.decoding = None;
        self.ordered.clear();
        self.unordered.clear();
        let mut trailers = status.trailers();
        if load_report::is_asked_for(&self.call.headers) {
            trailers.extend([self.endpoint.load_reports.now(&self.endpoint.engine).metadata()]);
        }
        Poll::Ready(Some(Frame::trailers(trailers)))
    }

    fn in_flight(&self) -> usize {
        let waiting = self.ordered.len() + self.unordered.len() + self.unordered_refusals.len();
        waiting + usize::from(self.decoding.is_some())
    }

    /// Tells whether the body reads no more requests before it has answered some.
    fn is_full(&self) -> bool {
        self.in_flight() >= MAX_IN_FLIGHT || self.refusals.are_full()
    }

    /// Starts the requests that have arrived. Returns true if it stopped for another reason than that no more requests
    /// are available.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        for _ in 0..READ_AT_ONCE {
            if self.failure.is_some() {
                return false;
            }
            if let Some(decoding) = &mut self.decoding {
                let Poll::Ready(decoded) = Pin::new(decoding).poll(context) else { return false };
                self.decoding = None;
                match decoded {
                    Ok(Ok(decoded)) => self.start(decoded.0, decoded.1),
                    Ok(Err(Malformed)) => self.failure = Some(Status::unparsable()),
                    Err(error) => self.failure = Some(error.into()),
                }
                continue;
            }
            if !self.reading {
                return false;
            }
            if self.is_full() {
                self.messages.pause();
                return true;
            }
            match self.messages.poll_next(context) {
                Poll::Ready(Some(Ok(message))) => self.accept(message),
                Poll::Ready(Some(Err(MessageError::Refused(RefusedMessage { id, error })))) => {
                    self.ordered.push_back(OrderedReply::Refused(self.refusals.add(&id, &error)));
                }
                Poll::Ready(Some(Err(error @ MessageError::End(_)))) => self.failure = Some(error.into()),
                Poll::Ready(Some(Err(error @ MessageError::Gone))) => {
                    self.has_client_gone = true;
                    self.failure = Some(error.into());
                }
                Poll::Ready(None) => self.reading = false,
                Poll::Pending => return false,
            }
        }
        true
    }

    fn accept(&mut self, message: ReceivedMessage) {
        let times = self.message_times();
        if let Some(load) = request::load_before(&self.endpoint, &self.call, &message) {
            self.messages.pause();
            self.decoding = Some(self.decode_after(load, message, times));
            return;
        }
        if !decode::is_brief(&message.frames) {
            self.messages.pause();
            self.decoding = Some(self.decode_in_pool(message, times));
            return;
        }
        let mut request = Request::default();
        match decode_message(&self.endpoint, &self.call, message, times, &mut request) {
            Ok(accepted) => self.start(accepted, request),
            Err(Malformed) => self.failure = Some(Status::unparsable()),
        }
    }

    /// The times of the message that has come, if requests are traced. The body now waits for the next message.
    fn message_times(&mut self) -> Option<MessageTimes> {
        let arrived = self.endpoint.options.tracer.is_on().then(now);
        let waiting = std::mem::replace(&mut self.waiting, arrived).or(arrived);
        Some(MessageTimes { waiting: waiting?, arrived: arrived? })
    }

    /// Decodes a message when its model has been loaded. A refusal of the load refuses the request.
    fn decode_after(
        &self,
        load: impl Future<Output = Result<(), Error>> + Send + 'static,
        message: ReceivedMessage,
        times: Option<MessageTimes>,
    ) -> LongDecoding {
        let (id, bytes) = (decode::leading_id(&message.frames), message.len());
        let decoding = self.decode_in_pool(message, times);
        PooledResult::Pooled(Box::pin(async move {
            match load.await {
                Ok(()) => decoding.await,
                Err(error) => {
                    let refused = AcceptedMessage { id, bytes, decoupled: false, decoded: Err(error) };
                    Ok(Ok(Box::new((refused, Request::default()))))
                }
            }
        }))
    }

    fn decode_in_pool(&self, message: ReceivedMessage, times: Option<MessageTimes>) -> LongDecoding {
        let (endpoint, call) = (self.endpoint.clone(), self.call.clone());
        PooledResult::pooled(move |_| {
            let mut request = Request::default();
            let accepted = match request::reserve_copies(&endpoint, &message) {
                Ok(_copies) => decode_message(&endpoint, &call, message, times, &mut request)?,
                Err(error) => AcceptedMessage {
                    id: decode::leading_id(&message.frames),
                    bytes: message.len(),
                    decoupled: false,
                    decoded: Err(error),
                },
            };
            Ok(Box::new((accepted, request)))
        })
    }

    #[inline]
    fn start(&mut self, accepted: AcceptedMessage, request: Request) {
        let AcceptedMessage { id, decoupled, decoded, bytes } = accepted;
        let mut line =
            AccessLine::begin(self.endpoint.options.access_log.as_ref(), "grpc", self.call.peer, || {
                "ModelStreamInfer".to_owned()
            });
        if let Some(line) = &mut line {
            line.set_request_bytes(bytes as u64);
            line.facts().set_request_id(&id);
            if let Ok((context, _)) = &decoded {
                line.facts().set_model(&context.model);
            }
        }
        let streamed_request = decoded.and_then(|(context, sent_version)| {
            self.sequences.carry(&context.model, &request);
            let responses = context.model.infer(request)?;
            let errors_end_call = self.errors_end_call;
            let line = line.take();
            let budget = self.endpoint.engine.inflight_bytes().clone();
            Ok(StreamedRequest {
                context,
                responses,
                sent_version,
                sent: 0,
                ended: false,
                errors_end_call,
                line,
                budget,
                finishing: None,
            })
        });
        if let (Some(line), Err(error)) = (&mut line, &streamed_request) {
            line.set_status(code_of(error));
        }
        match streamed_request {
            Ok(streamed_request) if decoupled => self.unordered.push(streamed_request),
            Ok(streamed_request) => self.ordered.push_back(OrderedReply::Running(streamed_request)),
            Err(error) if decoupled => self.unordered_refusals.push_back(self.refusals.add(&id, &error)),
            Err(error) => self.ordered.push_back(OrderedReply::Refused(self.refusals.add(&id, &error))),
        }
    }

    /// Collects the messages that are ready. If messages must be compressed, collects one at a time.
    fn collect(&mut self, context: &mut Context<'_>) -> Chunks {
        let mut collected = Chunks::new();
        let (mut most, mut room) = (UNCOUNTED, None);
        while self.failure.is_none() {
            // A large message counts by itself. Many small ones count together.
            if (most..SENT_AT_ONCE).contains(&collected.remaining()) {
                room = self.endpoint.engine.inflight_bytes().reserve(SENT_AT_ONCE + UNCOUNTED).ok();
                most = if room.is_some() { SENT_AT_ONCE } else { UNCOUNTED };
            }
            if collected.remaining() >= most {
                break;
            }
            match self.poll_message(context) {
                Poll::Ready(Ok(StreamMessage { message, traced })) => {
                    collected.append(message);
                    self.sending.extend(traced);
                }
                Poll::Ready(Err(status)) => self.failure = Some(status),
                Poll::Pending => break,
            }
            if self.compressor.is_some() && collected.has_remaining() {
                break;
            }
        }
        if let Some(mut room) = room {
            room.shrink_to(collected.remaining());
            collected.hold(room);
        }
        collected
    }

    /// The next message of any request. Polls both kinds of requests before it returns `Pending`.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<StreamMessage, Status>> {
        self.unordered_first = !self.unordered_first;
        for unordered in [self.unordered_first, !self.unordered_first] {
            let polled = if unordered { self.poll_unordered(context) } else { self.poll_ordered(context) };
            if polled.is_ready() {
                return polled;
            }
        }
        Poll::Pending
    }

    fn poll_ordered(&mut self, context: &mut Context<'_>) -> Poll<Result<StreamMessage, Status>> {
        while let Some(turn) = self.ordered.front_mut() {
            match turn {
                OrderedReply::Refused(refusal) => {
                    let message = self.refusals.take(refusal);
                    self.ordered.pop_front();
                    return Poll::Ready(Ok(message.into()));
                }
                OrderedReply::Running(streamed_request) => {
                    let message = ready!(streamed_request.poll_message(context));
                    // The request has been answered. Later responses of the model are dropped while other requests are
                    // polled.
                    if let Some(OrderedReply::Running(streamed_request)) = self.ordered.pop_front()
                        && !streamed_request.ended
                    {
                        self.unordered.push(streamed_request);
                    }
                    if let Some(message) = message {
                        return Poll::Ready(message);
                    }
                }
            }
        }
        Poll::Pending
    }

    fn poll_unordered(&mut self, context: &mut Context<'_>) -> Poll<Result<StreamMessage, Status>> {
        if let Some(mut refusal) = self.unordered_refusals.pop_front() {
            return Poll::Ready(Ok(self.refusals.take(&mut refusal).into()));
        }
        match ready!(self.unordered.poll_next_unpin(context)) {
            Some(message) => Poll::Ready(message),
            None => Poll::Pending,
        }
    }
}

/// Writes what the message asks for into `request`, which must be empty.
#[inline]
fn decode_message(
    endpoint: &GrpcContext,
    call: &CallHead,
    received: ReceivedMessage,
    times: Option<MessageTimes>,
    request: &mut Request,
) -> Result<AcceptedMessage, Malformed> {
    let bytes = if endpoint.options.access_log.is_some() { received.len() } else { 0 };
    let ReceivedMessage { frames, reservation } = received;
    let message = match InferMessage::decode(&frames) {
        Ok(message) => message,
        Err(invalid) => {
            let decoded = Err(invalid.refusal()?);
            return Ok(AcceptedMessage { id: Name::default(), bytes, decoupled: false, decoded });
        }
    };
    let id = lengths::short_id(&message.id);
    if let Err(denied) = request::check(call, &message) {
        let denied = Error::invalid(denied.message().to_owned());
        return Ok(AcceptedMessage { id, bytes, decoupled: false, decoded: Err(denied) });
    }
    let is_stopping = endpoint.drain.has_begun();
    let stopping = || Error::unavailable(Status::stopping().message().to_owned());
    let model = match endpoint.model(call, &message.model_name, &message.model_version) {
        Ok(model) => model,
        Err(_) if is_stopping => {
            return Ok(AcceptedMessage { id, bytes, decoupled: false, decoded: Err(stopping()) });
        }
        Err(error) => return Ok(AcceptedMessage { id, bytes, decoupled: false, decoded: Err(error) }),
    };
    let decoupled = model.config().decoupled;
    let sent_version = Name::new(&message.model_version);
    let context = match request::decode(endpoint, call, (model, message), (reservation, times), request) {
        Ok(context) => Ok(context),
        Err(invalid) => Err(invalid.refusal()?),
    };
    // A sequence may finish on a call that was open before the stop.
    let is_late = is_stopping
        && context.as_ref().is_ok_and(|context| {
            endpoint.drain.are_sequences_over() || !context.model.has_sequence_of(request)
        });
    let decoded = if is_late { Err(stopping()) } else { context.map(|context| (context, sent_version)) };
    Ok(AcceptedMessage { id, bytes, decoupled, decoded })
}
