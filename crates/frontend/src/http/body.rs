//! Request and response bodies: the server reads requests without joining their pieces, and sends responses without
//! copying them.
use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use futures_util::FutureExt;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use vocabulary::{BudgetExceeded, ByteBudget, ByteReservation, Error, TensorData};

use super::activity::OpenRequestGuard;
use crate::{
    access::AccessLine,
    chunks::Chunks,
    counted_bytes::{UNCOUNTED, hold, resized},
    port::{BodyPace, BodyProgress, Drain, LateBody},
    tracing::TracedSend,
};

/// Smaller frames are copied together.
const SMALL: usize = 4 << 10;

/// The rest of an unused body that the server reads before it answers, in bytes, so that the connection can stay open.
const SMALL_REST: usize = 1 << 20;

/// The same for a body whose client does not state its length: most have a longer rest.
const UNSTATED_REST: usize = 64 << 10;

/// The most chunks of a chunked body in which most chunks are tiny. As Triton: http_server.cc, kMaxChunkedChunks.
const MAX_CHUNKS: usize = 1 << 16;

/// The refusal of a body with more chunks. The text is Triton's.
const TOO_MANY_CHUNKS: &str = "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP \
                               chunks.";

/// Why a body was not read to its end.
#[derive(Debug)]
pub(super) enum BodyFailure {
    /// The client gets this error. The server skips the rest of the body.
    Refused(Error),
    /// The connection ends with this status: the client sends no more, or sends an invalid body.
    Broken(StatusCode, &'static str),
}

impl From<BudgetExceeded> for BodyFailure {
    fn from(refused: BudgetExceeded) -> Self {
        Self::Refused(refused.into())
    }
}

/// When reading stops.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits<'s> {
    /// Most bytes of the whole body.
    pub(super) len: u64,
    /// The minimum pace at which the body must arrive.
    pub(super) pace: Option<BodyPace>,
    /// The drain of the port: a server that stops waits less.
    pub(super) drain: &'s Drain,
    /// Where the bytes are reserved as they arrive.
    pub(super) budget: &'s Arc<ByteBudget>,
}

/// A whole body.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) bytes: TensorData,
    /// Holds them, or what was made of them.
    pub(super) reservation: ByteReservation,
}

/// Reads a whole body into pieces.
///
/// `too_large` makes the refusal. It gets the length of the body. If the client does not state the length, it gets a
/// lower bound.
pub(super) async fn collect<B: Body<Data = Bytes> + Unpin + ?Sized>(
    body: &mut B,
    bounds: BodyLimits<'_>,
    too_large: impl Fn(u64) -> Error,
) -> Result<ReceivedBody, BodyFailure> {
    let announced = body.size_hint().exact();
    if let Some(len) = announced.filter(|len| *len > bounds.len) {
        return Err(BodyFailure::Refused(too_large(len)));
    }
    let mut pieces = BodyPieces::default();
    let mut progress = BodyProgress::new(bounds.pace, bounds.drain);
    let mut reservation = bounds.budget.reservation();
    while let Some(piece) = next(body, &mut progress).await? {
        reservation.grow(piece.len())?;
        pieces.push(piece, bounds.budget.is_scarce());
        if pieces.len > bounds.len {
            return Err(BodyFailure::Refused(too_large(pieces.len)));
        }
        let tiny = pieces.count as u64 * 1024 > pieces.len;
        if announced.is_none() && tiny && pieces.count > MAX_CHUNKS {
            return Err(BodyFailure::Broken(StatusCode::BAD_REQUEST, TOO_MANY_CHUNKS));
        }
    }
    Ok(ReceivedBody { bytes: pieces.finish(), reservation })
}

/// The refusal of a body that exceeds the limit for all bodies.
pub(super) fn too_large(len: u64, limit: u64) -> Error {
    Error::invalid(format!(
        "request body of {len} bytes exceeds the maximum of {limit} bytes. Use --max-request-byte-size to increase the \
         limit."
    ))
}

/// Reads and drops the rest of a body if it is small. Returns true if the body is at its end, so that another request may
/// follow. A client that `waits` for `100 Continue` is not asked for its body.
pub(super) async fn read_rest<B: Body<Data = Bytes> + Unpin + ?Sized>(
    body: &mut B,
    waits: bool,
    pace: Option<BodyPace>,
    drain: &Drain,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let mut small = match body.size_hint().exact() {
        Some(left) if left > SMALL_REST as u64 => return false,
        Some(_) => SMALL_REST,
        None => UNSTATED_REST,
    };
    let mut progress = BodyProgress::new(pace, drain);
    if waits {
        // Only this tells whether a chunked body is at its end. The server asks for a body only if something waits for it.
        return matches!(next(body, &mut progress).now_or_never(), Some(Ok(None)));
    }
    while !body.is_end_stream() {
        match next(body, &mut progress).await {
            Ok(Some(piece)) if piece.len() <= small => small -= piece.len(),
            Ok(None) => return true,
            Ok(Some(_)) | Err(_) => return false,
        }
    }
    true
}

async fn next<B: Body<Data = Bytes> + Unpin + ?Sized>(
    body: &mut B,
    progress: &mut BodyProgress,
) -> Result<Option<Bytes>, BodyFailure> {
    let late = |late| match late {
        LateBody::TooSlow => {
            BodyFailure::Broken(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")
        }
        LateBody::Stopping => BodyFailure::Broken(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server stops, and the request body had not arrived",
        ),
    };
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => progress.poll_late(context).map(Err),
        });
        match frame.await.map_err(late)? {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(BodyFailure::Broken(
                    StatusCode::BAD_REQUEST,
                    "the request body could not be read",
                ));
            }
            // The server ignores trailers.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    progress.add(data.len());
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// The pieces of a body. Small pieces are joined.
#[derive(Default)]
struct BodyPieces {
    whole: TensorData,
    joined: BytesMut,
    len: u64,
    count: usize,
}

impl BodyPieces {
    /// Adds a piece. A piece keeps alive the whole buffer into which it was read, which may be much longer: it is copied if
    /// it is small, or if memory is scarce.
    fn push(&mut self, piece: Bytes, is_scarce: bool) {
        self.count += usize::from(!piece.is_empty());
        self.len += piece.len() as u64;
        // Usually the body is one piece.
        if (piece.len() >= SMALL && !is_scarce) || self.count == 1 {
            self.flush();
            self.whole.push(piece);
        } else {
            self.joined.extend_from_slice(&piece);
            if self.joined.len() >= 16 * SMALL {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        self.whole.push(std::mem::take(&mut self.joined).freeze());
    }

    fn finish(mut self) -> TensorData {
        self.flush();
        self.whole
    }
}

/// The body of a response: pieces of known total length, or pieces that are sent as chunks, and possibly more pieces
/// later.
#[derive(Default)]
pub struct ResponseBody {
    /// The pieces in reverse order: the next piece is the last element.
    pieces: SmallVec<[Bytes; 2]>,
    left: u64,
    behind: Behind,
    /// Of the bytes that are present, until [`ResponseBody::count_in`].
    reservation: Option<ByteReservation>,
    /// Dropped together with the body. Until then the connection is not idle.
    busy: Option<OpenRequestGuard>,
    /// Dropped together with the body, if the request is traced.
    traced: Option<TracedSend>,
    /// Counts the bytes that are sent. Dropped after what follows the pieces, and together with the body.
    line: Option<Box<AccessLine>>,
}

/// What follows the pieces of a body.
#[derive(Default)]
enum Behind {
    /// Nothing follows, so the header states the length.
    #[default]
    Nothing,
    /// The end of a chunked body. The header does not state the length.
    End,
    /// An event for each response that has not come yet.
    Events(Pin<Box<dyn Stream<Item = Chunks> + Send>>),
}

impl ResponseBody {
    /// A body that is sent as a chunk although its length is known.
    pub(super) fn chunked(whole: impl Into<Chunks>) -> Self {
        Self { behind: Behind::End, ..Self::new(whole, std::iter::empty()) }
    }

    /// The events of the responses that have come already, and a stream of the later events.
    pub(super) fn events(
        first: impl Into<Chunks>,
        events: impl Stream<Item = Chunks> + Send + 'static,
    ) -> Self {
        Self { behind: Behind::Events(Box::pin(events)), ..Self::new(first, std::iter::empty()) }
    }

    /// The bytes of the body, or of what it was made of, are in this reservation.
    pub(super) fn reserved(mut self, reservation: Option<ByteReservation>) -> Self {
        self.reservation = reservation;
        self
    }

    /// Whether [`ResponseBody::count_in`] need not be called: few bytes are present, or events, which are counted one by
    /// one.
    pub(super) fn is_brief(&self) -> bool {
        self.left <= UNCOUNTED as u64 || matches!(self.behind, Behind::Events(_))
    }

    /// Counts the bytes that are present in a budget, until the connection has sent them.
    ///
    /// # Errors
    /// The budget has no room for them.
    pub(super) fn count_in(mut self, budget: &Arc<ByteBudget>) -> Result<Self, BudgetExceeded> {
        let reservation = self.reservation.take().unwrap_or_else(|| budget.reservation());
        let reservation = resized(reservation, usize::try_from(self.left).unwrap_or(usize::MAX))?;
        // The last piece is the first element.
        if let Some(last) = self.pieces.first_mut() {
            *last = hold(std::mem::take(last), reservation);
        }
        Ok(self)
    }

    /// Keeps the connection busy for as long as the body lives.
    pub(super) fn holding(mut self, busy: OpenRequestGuard) -> Self {
        self.busy = Some(busy);
        self
    }

    /// Tells a trace when the connection has taken the body.
    pub(super) fn traced(mut self, traced: TracedSend) -> Self {
        self.traced = Some(traced);
        self
    }

    /// Logs the request when the body is dropped.
    pub(super) fn logged(mut self, line: Box<AccessLine>) -> Self {
        self.line = Some(line);
        self
    }

    /// A body of a head and a tail. Empty pieces are left out.
    pub(crate) fn new(head: impl Into<Chunks>, tail: impl DoubleEndedIterator<Item = Bytes>) -> Self {
        let pieces = head.into().into_ranges().chain(tail).rev().filter(|piece| !piece.is_empty());
        let pieces: SmallVec<[Bytes; 2]> = pieces.collect();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self {
            pieces,
            left,
            behind: Behind::Nothing,
            reservation: None,
            busy: None,
            traced: None,
            line: None,
        }
    }

    /// The number of bytes that are present and not sent yet.
    pub fn len(&self) -> u64 {
        self.left
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop()?;
        self.left -= piece.len() as u64;
        if let Some(line) = &mut self.line {
            line.add_response_bytes(piece.len() as u64);
        }
        Some(piece)
    }

    /// Tells whether all present bytes were sent.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<T: Into<Bytes>> From<T> for ResponseBody {
    fn from(whole: T) -> Self {
        Self::new(whole.into(), std::iter::empty())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let event = match &mut self.behind {
            Behind::Nothing | Behind::End => None,
            Behind::Events(events) => ready!(events.as_mut().poll_next(context)),
        };
        let Some(event) = event else {
            self.behind = Behind::Nothing;
            return Poll::Ready(None);
        };
        self.left = event.remaining() as u64;
        self.pieces.extend(event.into_ranges().rev());
        Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && matches!(self.behind, Behind::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self.behind {
            Behind::Nothing => SizeHint::with_exact(self.left),
            Behind::End | Behind::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
