//! The layer between the socket of a gRPC connection and hyper. It reads the frames of both directions, and ends the
//! connection of a client that does not keep the limits.
//!
//! - If a client sends frames too often, the connection ends ([`FrameRateLimits`]).
//! - A client that sends or takes more and more lets other clients have their turn ([`IoTurn`]).
//! - Heads must arrive in time, whether they come byte by byte or frame by frame.
//! - The client must read what the server writes, in time.
//! - Idle clients get pings ([`Keepalive`]). The transport inserts a ping between two of hyper's frames. hyper ignores
//!   the answer.
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    call_tasks::CallCounter,
    frame_limits::{FrameFlood, FrameRateLimits},
    frames::{FrameHead, FrameKind, FrameReader},
    grpc_context::GrpcContext,
    keepalive::{Keepalive, KeepaliveEvent},
    unix_authority::AuthorityRewriter,
};
use crate::port::{ClientTimer, IoTurn, WriteTimeout};

/// The first bytes of every HTTP/2 client.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A PING frame with a payload that hyper never sends.
const PING: &[u8; 17] = b"\0\0\x08\x06\0\0\0\0\0nereid ?";

/// The error code of RFC 9113, section 7.
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The stream of a connection.
pub(super) struct Transport<S> {
    stream: S,
    /// The bytes that were read already. hyper reads them first.
    ahead: Bytes,
    calls: Arc<CallCounter>,
    /// Only for unix sockets.
    authority: Option<AuthorityRewriter>,
    incoming: HeadWatch,
    outgoing: FrameReader,
    frame_limits: FrameRateLimits,
    keepalive: Keepalive,
    write_timeout: WriteTimeout,
    reads: IoTurn,
    writes: IoTurn,
    /// Bytes to send between two frames.
    injected: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// A connection. `ahead` contains its first bytes, which were read already.
    pub(super) fn new(stream: S, ahead: Bytes, endpoint: &GrpcContext, calls: Arc<CallCounter>) -> Self {
        let options = &endpoint.options;
        // A client may cancel all its calls at once, for example when a shared deadline passes, and do so repeatedly.
        let resets = options.max_concurrent_streams.saturating_mul(4);
        Self {
            stream,
            ahead,
            calls,
            authority: None,
            incoming: HeadWatch::new(options.limits.header_timeout),
            outgoing: FrameReader::default(),
            frame_limits: FrameRateLimits::new(options.pings, resets, Instant::now().into_std()),
            keepalive: Keepalive::new(options.keepalive),
            write_timeout: WriteTimeout::new(options.limits.write_timeout, endpoint.drain.clone()),
            reads: IoTurn::default(),
            writes: IoTurn::default(),
            injected: Bytes::new(),
        }
    }

    /// Mends the names by which clients call the server on a unix socket.
    pub(super) fn mending_authority(self) -> Self {
        Self { authority: Some(AuthorityRewriter::after(PREFACE.len())), ..self }
    }

    /// Reads the frames of bytes from the client.
    fn received(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        self.keepalive.heard(Instant::now());
        let (frame_limits, calls) = (&mut self.frame_limits, self.calls.open());
        let judged = self
            .incoming
            .advance(bytes, |frame| frame_limits.received(frame, calls, || Instant::now().into_std()));
        judged.map_err(|flood| self.dismiss(context, flood))
    }

    /// Sends the reason for the end of the connection, if the socket takes it at once.
    fn dismiss(&mut self, context: &mut Context<'_>, flood: FrameFlood) -> io::Error {
        if self.injected.is_empty() && self.outgoing.is_between_frames() {
            let farewell = go_away(self.incoming.last_stream, flood.reason);
            // The connection ends even if this write fails.
            let _ = Pin::new(&mut self.stream).poll_write(context, &farewell);
            let _ = Pin::new(&mut self.stream).poll_flush(context);
        }
        io::Error::other(flood.reason)
    }

    /// Checks the time limits while the client sends nothing.
    fn poll_timers(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.incoming.poll_late(context).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "a head did not arrive in time"));
        }
        loop {
            match ready!(self.keepalive.poll(context, self.calls.open())) {
                KeepaliveEvent::ClientIsGone => {
                    return Poll::Ready(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the client does not answer pings",
                    ));
                }
                KeepaliveEvent::Ping => {
                    self.injected = Bytes::from_static(PING);
                    // Bytes that cannot be sent now are sent before hyper's next frame, or by its next flush.
                    if let Poll::Ready(Err(error)) = self.poll_inject(context) {
                        return Poll::Ready(error);
                    }
                }
            }
        }
    }

    /// Sends the injected bytes, if hyper is between two frames.
    fn poll_inject(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.outgoing.is_between_frames() {
            return Poll::Ready(Ok(()));
        }
        while self.injected.has_remaining() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.injected))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.injected.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the frames of bytes that were sent to the client.
    fn sent(&mut self, bytes: &[u8]) {
        let Self { outgoing, frame_limits, keepalive, calls, .. } = self;
        let mut is_answer = outgoing.is_within() == Some(FrameKind::Data);
        let advanced = outgoing.advance(bytes, |frame| {
            frame_limits.sent(frame);
            if matches!(frame.kind, FrameKind::Data | FrameKind::Headers) {
                keepalive.sent_data();
                is_answer = true;
            }
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = advanced;
        if is_answer {
            calls.note_sent();
        }
    }
}

/// A GOAWAY frame.
pub(super) fn go_away(last_stream: u32, reason: &str) -> Bytes {
    let mut frame = BytesMut::with_capacity(17 + reason.len());
    frame.put_uint(8 + reason.len() as u64, 3);
    frame.put_slice(&[7, 0, 0, 0, 0, 0]);
    frame.put_u32(last_stream);
    frame.put_u32(ENHANCE_YOUR_CALM);
    frame.put_slice(reason.as_bytes());
    frame.freeze()
}

/// Follows the bytes from the client, and detects late heads: the settings that begin a connection, a header block, or
/// a frame other than DATA. The pace of bodies limits DATA frames instead.
struct HeadWatch {
    frames: FrameReader,
    /// The first bytes of the client's settings have arrived.
    has_settings: bool,
    /// A header block has begun and has not ended.
    is_in_headers: bool,
    last_stream: u32,
    /// Changes with each head that has arrived completely.
    round: u64,
    limit: Option<Duration>,
    /// Runs while a part of a head has arrived. The number is the round of that head.
    timer: Option<(u64, ClientTimer)>,
}

impl HeadWatch {
    fn new(limit: Option<Duration>) -> Self {
        Self {
            frames: FrameReader::after(PREFACE.len()),
            has_settings: false,
            is_in_headers: false,
            last_stream: 0,
            round: 0,
            limit,
            timer: None,
        }
    }

    fn advance(
        &mut self,
        bytes: &[u8],
        mut judge: impl FnMut(FrameHead) -> Result<(), FrameFlood>,
    ) -> Result<(), FrameFlood> {
        let Self { frames, has_settings, is_in_headers, last_stream, round, .. } = self;
        frames.advance(bytes, |frame| {
            *has_settings |= frame.kind == FrameKind::Settings && !frame.is_ack();
            if frame.kind == FrameKind::Headers {
                *last_stream = frame.stream.max(*last_stream);
            }
            if matches!(frame.kind, FrameKind::Headers | FrameKind::Continuation) {
                *is_in_headers = !frame.ends_headers();
            }
            *round += u64::from(!*is_in_headers);
            judge(frame)
        })
    }

    fn is_within_head(&self) -> bool {
        !self.has_settings
            || self.is_in_headers
            || self.frames.is_within_head()
            || self.frames.is_within().is_some_and(|kind| kind != FrameKind::Data)
    }

    /// Ready when a head is late. The caller polls it while the client sends nothing.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limit else { return Poll::Pending };
        if !self.is_within_head() {
            self.timer = None;
            return Poll::Pending;
        }
        match &mut self.timer {
            Some((round, timer)) if *round == self.round => timer.poll(context),
            timer => timer.insert((self.round, ClientTimer::new(limit))).1.poll(context),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.reads.poll(context));
        let before = buffer.filled().len();
        if self.ahead.has_remaining() {
            let count = buffer.remaining().min(self.ahead.len());
            let ahead = self.ahead.split_to(count);
            buffer.put_slice(&ahead);
        } else {
            match Pin::new(&mut self.stream).poll_read(context, buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => {
                    self.reads.rest();
                    return self.poll_timers(context).map(Err);
                }
            }
        }
        self.reads.add(buffer.filled().len() - before);
        if let Some(authority) = &mut self.authority {
            authority.rewrite(&mut buffer.filled_mut()[before..]);
        }
        let read = self.received(context, &buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.writes.poll(context));
        let polled = match this.poll_inject(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_write_vectored(context, pieces),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        if polled.is_pending() {
            this.writes.rest();
        }
        let mut left = ready!(this.write_timeout.check_write(context, polled))?;
        let count = left;
        this.writes.add(count);
        for piece in pieces {
            let sent = left.min(piece.len());
            this.sent(&piece[..sent]);
            left -= sent;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = match this.poll_inject(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_flush(context),
            other => other,
        };
        this.write_timeout.check_flush(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.write_timeout.check_flush(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_that_are_sent_here_are_well_formed() {
        for frame in [&PING[..], &go_away(7, "too_many_pings")] {
            let mut heads = Vec::new();
            let mut reader = FrameReader::default();
            let advanced = reader.advance(frame, |head| {
                heads.push((head.kind, head.stream));
                Ok::<_, std::convert::Infallible>(())
            });
            advanced.unwrap();
            assert!(reader.is_between_frames());
            assert!(matches!(heads[..], [(FrameKind::Ping | FrameKind::GoAway, 0)]), "{heads:?}");
        }
    }
}
