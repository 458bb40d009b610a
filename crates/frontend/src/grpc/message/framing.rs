//! The messages of a request body. Before each message stand five bytes: its length, and whether it is compressed.
//!
//! The messages are cut out of the received frames without copying. Source: "gRPC over HTTP2".
//!
//! A message for which there is no room is refused alone: its bytes are skipped as they arrive, and the next message is
//! read. Only the bytes of one frame wait without a reservation.
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use smallvec::SmallVec;
use vocabulary::{BudgetExceeded, ByteBudget, ByteReservation, Error, Name};

use super::{
    decode,
    prefix::{MAX_MESSAGE, PREFIX},
};
use crate::{
    compression::{Coding, InflateError},
    decode_pool::PooledResult,
    grpc::status::{Code, Status},
    port::{BodyProgress, ClientLimits, Drain, LateBody},
};

/// A message, in the frames in which it arrived.
pub(crate) type Frames = SmallVec<[Bytes; 2]>;

/// A whole message, decompressed.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) frames: Frames,
    /// Holds its bytes.
    pub(crate) reservation: ByteReservation,
}

impl ReceivedMessage {
    /// Its bytes, without its prefix.
    pub(crate) fn len(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }
}

/// The reason why there is no message.
#[derive(Debug)]
pub(crate) enum MessageError {
    /// The server has no room for the message. The next message can be read.
    Refused(RefusedMessage),
    /// The body has no further message: what it has breaks a rule.
    End(Status),
    /// The client has given up the call, or has disconnected. It reads no status.
    Gone,
}

/// A message for which there is no room.
#[derive(Debug)]
pub(crate) struct RefusedMessage {
    /// The id of the request, if it is an infer request and its beginning has arrived. Otherwise empty.
    pub(crate) id: Name,
    pub(crate) error: Error,
}

impl From<Status> for MessageError {
    fn from(status: Status) -> Self {
        Self::End(status)
    }
}

impl From<MessageError> for Status {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Refused(refused) => refused.error.into(),
            MessageError::End(status) => status,
            MessageError::Gone => Status::new(Code::Cancelled, "the client has gone"),
        }
    }
}

/// Frames below this size are small, and [`SMALL_RUN`] of them in a row are joined: each costs more memory than it brings.
const SMALL: usize = 1024;
const SMALL_RUN: usize = 64;

/// Cuts a body into messages. One task polls it. Polling is cancel-safe.
pub(crate) struct Messages<B> {
    body: B,
    coding: Option<Coding>,
    /// The frames that have arrived and that are not yet given out. No frame is empty.
    frames: Frames,
    /// The number of bytes in `frames`.
    held: usize,
    /// Holds them, and those of the prefix of the message that is arriving.
    reservation: ByteReservation,
    /// Small frames at the end of `frames`.
    small_run: usize,
    /// The header of the message that is arriving.
    header: Option<Header>,
    /// Present only while there is no room. Boxed, because the futures of calls contain this struct.
    rest: Option<Box<Rest>>,
    inflating: Option<PooledResult<Result<(Bytes, ByteReservation), InflateError>>>,
    ended: bool,
    max_message: usize,
    progress: BodyProgress,
    /// If true, the time limit of the first message starts at once. Otherwise the limit of each message starts with its
    /// first byte.
    is_unary: bool,
}

/// The part of the body behind the bytes that are held.
enum Rest {
    /// This many bytes of a refused message have not arrived.
    Skipped(usize),
    /// Bytes of later messages. They have arrived, and are not reserved yet.
    Unread(Bytes),
}

#[derive(Clone, Copy)]
struct Header {
    compressed: bool,
    length: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    /// The messages of `body`; compressed ones are in `coding`. A message of more bytes than the limits allow, or one that
    /// unfolds to more, ends the body. A message for which `budget` has no room is refused alone: its bytes are reserved
    /// as they arrive. From the begin of `drain` on, the wait for a message that has begun is brief.
    pub(crate) fn new(
        body: B,
        coding: Option<Coding>,
        (limits, drain): (&ClientLimits, &Drain),
        budget: &Arc<ByteBudget>,
    ) -> Self {
        Self {
            reservation: budget.reservation(),
            body,
            coding,
            frames: Frames::new(),
            held: 0,
            small_run: 0,
            header: None,
            rest: None,
            inflating: None,
            ended: false,
            max_message: usize::try_from(limits.max_request_bytes)
                .map_or(MAX_MESSAGE, |max| max.min(MAX_MESSAGE)),
            progress: BodyProgress::new(limits.body_pace, drain),
            is_unary: false,
        }
    }

    /// Returns the only message of the body.
    ///
    /// # Errors
    /// The body holds no message or several, or one that cannot be read.
    pub(crate) async fn only(mut self) -> Result<ReceivedMessage, Status> {
        self.is_unary = true;
        let Some(message) = poll_fn(|context| self.poll_next(context)).await else {
            return Err(Status::unparsable());
        };
        let message = message?;
        // Usually the client ends the body together with the message. Then this poll returns at once.
        match poll_fn(|context| self.poll_next(context)).await {
            None => Ok(message),
            Some(Ok(_)) => Err(Status::new(Code::Internal, "Expected one request message, got several")),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// The next message, decompressed; `None` when the client has ended the body.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ReceivedMessage, MessageError>>> {
        loop {
            if let Some(work) = &mut self.inflating {
                let inflated = ready!(Pin::new(work).poll(context));
                self.inflating = None;
                return Poll::Ready(Some(match inflated {
                    Ok(Ok((message, reservation))) => {
                        Ok(ReceivedMessage { frames: SmallVec::from_iter([message]), reservation })
                    }
                    Ok(Err(InflateError::BudgetExceeded(refused))) => {
                        Err(refused_message(Name::default(), refused))
                    }
                    // It is not known how many bytes more.
                    Ok(Err(InflateError::TooLarge)) => {
                        Err(too_long(self.max_message + 1, self.max_message).into())
                    }
                    Ok(Err(InflateError::Corrupt | InflateError::Abandoned)) => {
                        Err(Status::new(Code::Internal, "failed to decompress request").into())
                    }
                    Err(error) => Err(Status::from(error).into()),
                }));
            }
            match self.cut() {
                Ok(Some((message, None))) => return Poll::Ready(Some(Ok(message))),
                Ok(Some((message, Some(coding)))) => {
                    let ReceivedMessage { frames, reservation } = message;
                    let source = frames.into_iter().collect();
                    self.inflating = Some(coding.inflate(source, self.max_message, reservation));
                    continue;
                }
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status.into()))),
            }
            match ready!(self.poll_data(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(data)) => {
                    if let Err(error) = self.hold(data) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
    }

    /// The next bytes of the body. `None` if it has ended after a message.
    #[inline]
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, MessageError>>> {
        if let Some(unread) = self.take_unread() {
            return Poll::Ready(Some(Ok(unread)));
        }
        loop {
            if self.ended || self.body.is_end_stream() {
                self.ended = true;
                return Poll::Ready(self.is_within_message().then(|| Err(self.give_up().into())));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return self.poll_late(context).map(|status| Some(Err(status.into()))),
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.progress.add(data.len());
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(_)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(MessageError::Gone)));
                }
                None => self.ended = true,
            }
        }
    }

    fn take_unread(&mut self) -> Option<Bytes> {
        match self.rest.as_deref_mut()? {
            Rest::Skipped(_) => None,
            Rest::Unread(data) => {
                let data = std::mem::take(data);
                self.rest = None;
                Some(data)
            }
        }
    }

    /// A message has begun to arrive and has not ended.
    fn is_within_message(&self) -> bool {
        self.held > 0 || self.header.is_some() || self.rest.is_some()
    }

    /// Ready when a message that has begun does not arrive fast enough, or the server stops meanwhile.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if !self.is_unary && !self.is_within_message() {
            self.progress.stop();
            return Poll::Pending;
        }
        Poll::Ready(match ready!(self.progress.poll_late(context)) {
            LateBody::TooSlow => Status::new(Code::DeadlineExceeded, "the request did not arrive in time"),
            LateBody::Stopping => Status::stopping(),
        })
    }

    /// Stops the time limit, because the server does not read from the client for now.
    pub(crate) fn pause(&mut self) {
        self.progress.stop();
    }

    /// The body ends inside a message. The error is returned once.
    fn give_up(&mut self) -> Status {
        self.clear();
        self.rest = None;
        Status::new(Code::Internal, "The request ends inside a message")
    }

    /// Forgets what has arrived of a message.
    fn clear(&mut self) {
        self.frames.clear();
        self.held = 0;
        self.small_run = 0;
        self.header = None;
        self.reservation.shrink_to(0);
    }

    /// Holds bytes that have arrived, as far as there is room.
    fn hold(&mut self, data: Bytes) -> Result<(), MessageError> {
        if self.rest.is_none() && self.reserve(data.len()).is_ok() {
            self.push(data);
            return Ok(());
        }
        self.hold_in_part(data)
    }

    /// Reserves what is held and `count` bytes more. The beginning of a prefix may be held without a reservation.
    fn reserve(&mut self, count: usize) -> Result<(), BudgetExceeded> {
        let prefix = if self.header.is_some() { PREFIX } else { 0 };
        self.reservation.grow_to(prefix + self.held + count)
    }

    /// Skips the rest of a refused message. Then holds the bytes up to the end of the message that is arriving, or refuses
    /// that message. The bytes of later messages remain unread.
    #[cold]
    fn hold_in_part(&mut self, mut data: Bytes) -> Result<(), MessageError> {
        if let Some(rest) = self.rest.take()
            && let Rest::Skipped(left) = *rest
        {
            let skipped = left.min(data.len());
            data.advance(skipped);
            self.skip(left - skipped);
        }
        if self.reserve(data.len()).is_ok() {
            self.push(data);
            return Ok(());
        }
        let header = match self.header {
            Some(header) => header,
            None => {
                debug_assert!(self.held < PREFIX, "whole messages have been cut off");
                // The prefix decides how many bytes to skip, so it is held even if there is no room.
                self.push(data.split_to((PREFIX - self.held).min(data.len())));
                if self.held < PREFIX {
                    return Ok(());
                }
                let header = self.take_header()?;
                *self.header.insert(header)
            }
        };
        let first = data.split_to((header.length - self.held).min(data.len()));
        if !data.is_empty() {
            self.rest = Some(Box::new(Rest::Unread(data)));
        }
        let Err(refused) = self.reserve(first.len()) else {
            self.push(first);
            return Ok(());
        };
        self.push(first);
        let id = if header.compressed { Name::default() } else { decode::leading_id(&self.frames) };
        self.skip(header.length - self.held);
        self.clear();
        Err(refused_message(id, refused))
    }

    /// Notes that the next bytes belong to a refused message.
    fn skip(&mut self, count: usize) {
        if count > 0 {
            self.rest = Some(Box::new(Rest::Skipped(count)));
        }
    }

    /// Appends bytes.
    fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.held += data.len();
        self.small_run = if data.len() < SMALL { self.small_run + 1 } else { 0 };
        self.frames.push(data);
        if self.small_run < SMALL_RUN {
            return;
        }
        let run = self.frames.drain(self.frames.len() - SMALL_RUN..);
        let joined = run.fold(BytesMut::new(), |mut joined, frame| {
            joined.extend_from_slice(&frame);
            joined
        });
        self.small_run = usize::from(joined.len() < SMALL);
        self.frames.push(joined.freeze());
    }

    /// A whole message and how it is compressed, if one has arrived.
    fn cut(&mut self) -> Result<Option<(ReceivedMessage, Option<Coding>)>, Status> {
        let header = match self.header {
            Some(header) => header,
            None if self.held < PREFIX => return Ok(None),
            None => {
                let header = self.take_header()?;
                *self.header.insert(header)
            }
        };
        if self.held < header.length {
            return Ok(None);
        }
        self.header = None;
        let frames = self.take(header.length);
        let reservation = self.reservation.split_off(PREFIX + header.length);
        let message = ReceivedMessage { frames, reservation };
        match (header.compressed, self.coding) {
            (false, _) => Ok(Some((message, None))),
            (true, Some(coding)) => Ok(Some((message, Some(coding)))),
            (true, None) => Err(Status::new(
                Code::Internal,
                "A message is compressed, but 'grpc-encoding' names no algorithm",
            )),
        }
    }

    fn take_header(&mut self) -> Result<Header, Status> {
        let mut prefix = [0; PREFIX];
        for byte in &mut prefix {
            *byte = self.frames[0].get_u8();
            if self.frames[0].is_empty() {
                self.frames.remove(0);
            }
        }
        self.held -= PREFIX;
        self.small_run = self.small_run.min(self.frames.len());
        let [flag, length @ ..] = prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if flag > 1 {
            return Err(Status::new(
                Code::Internal,
                format!("A message begins with the invalid flag {flag}"),
            ));
        }
        if length > self.max_message {
            return Err(too_long(length, self.max_message));
        }
        Ok(Header { compressed: flag == 1, length })
    }

    /// Takes the first `length` bytes. They must have arrived.
    fn take(&mut self, length: usize) -> Frames {
        self.held -= length;
        if self.held == 0 {
            self.small_run = 0;
            return std::mem::take(&mut self.frames);
        }
        let mut missing = length;
        let whole = self.frames.iter().take_while(|frame| {
            let fits = frame.len() <= missing;
            missing -= if fits { frame.len() } else { 0 };
            fits
        });
        let whole = whole.count();
        let mut message: Frames = self.frames.drain(..whole).collect();
        if missing > 0 {
            message.push(self.frames[0].split_to(missing));
        }
        self.small_run = self.small_run.min(self.frames.len());
        message
    }
}

fn refused_message(id: Name, refused: BudgetExceeded) -> MessageError {
    MessageError::Refused(RefusedMessage { id, error: refused.into() })
}

/// The refusal of a message of `length` bytes.
fn too_long(length: usize, max: usize) -> Status {
    Status::new(Code::ResourceExhausted, format!("Received message larger than max ({length} vs. {max})"))
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
