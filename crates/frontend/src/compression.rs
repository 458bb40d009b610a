//! gzip and deflate for both protocols: the server inflates what clients send, and deflates what it sends.
//!
//! The cost of inflation follows from the bytes that it writes, because the input may be a thousand times shorter.
//! Inflation proceeds in steps of bounded length, never writes beyond the limit, and leaves the network threads when it
//! has written more than a small amount.
use std::io::{self, BufRead, Read, Write};

use bytes::{Buf, Bytes};
use flate2::{
    Compression,
    bufread::{MultiGzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use kserve::long_write::BRIEF;
use vocabulary::{BudgetExceeded, ByteReservation};

use crate::{chunks::Chunks, decode_pool::PooledResult};

/// The most bytes that one step in the pool writes. Between two steps the work checks whether its future still exists.
const STEP: usize = 256 << 10;

/// The most bytes that are deflated on the network thread, if the level is above the fastest.
const BRIEF_AT_HIGH_LEVELS: usize = 16 << 10;

/// A format of compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// RFC 1952; several members may follow each other.
    Gzip,
    /// The zlib format, RFC 1950, as HTTP and gRPC mean the word.
    Deflate,
}

/// Why bytes could not be inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InflateError {
    /// The bytes have another format, or are damaged or incomplete.
    Corrupt,
    /// The inflated bytes exceed the limit.
    TooLarge,
    /// The future of the work was dropped, so the result is no longer needed.
    Abandoned,
    /// The server holds as many bytes of requests as it may.
    BudgetExceeded(BudgetExceeded),
}

impl From<BudgetExceeded> for InflateError {
    fn from(no_room: BudgetExceeded) -> Self {
        Self::BudgetExceeded(no_room)
    }
}

impl Coding {
    /// All codings, in the order in which gRPC's own servers prefer them.
    pub(crate) const ALL: [Self; 2] = [Self::Gzip, Self::Deflate];

    /// The name of the coding in the headers of both protocols.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// Inflates `source` to at most `limit` bytes. `reservation` holds those of `source`; in the end it holds those of the
    /// result, and meanwhile both.
    pub(crate) fn inflate(
        self,
        source: Chunks,
        limit: usize,
        reservation: ByteReservation,
    ) -> PooledResult<Result<(Bytes, ByteReservation), InflateError>> {
        let brief = source.remaining() <= BRIEF;
        let mut inflater = Inflater::of_reader(self, source.reader(), limit, reservation);
        if brief {
            match inflater.step(BRIEF) {
                Ok(false) => {}
                Ok(true) => return PooledResult::done(Ok(inflater.finish())),
                Err(error) => return PooledResult::done(Err(error)),
            }
        }
        PooledResult::pooled(move |turn| {
            while !inflater.step(STEP)? {
                if !turn.goes_on() {
                    return Err(InflateError::Abandoned);
                }
            }
            Ok(inflater.finish())
        })
    }

    /// Deflates `source`, and puts `head` zero bytes in front for a prefix. `None` if the result would not be shorter.
    pub(crate) fn deflate(self, source: Chunks, level: u32, head: usize) -> PooledResult<Option<Vec<u8>>> {
        let len = source.remaining();
        let work =
            move || self.deflated(&source, level, head).ok().filter(|deflated| deflated.len() - head < len);
        if level > 1 && len > BRIEF_AT_HIGH_LEVELS {
            return PooledResult::pooled(move |_| work());
        }
        PooledResult::on_bytes(len, work)
    }

    fn deflated(self, source: &Chunks, level: u32, head: usize) -> io::Result<Vec<u8>> {
        let mut target = Vec::with_capacity(head + source.remaining() / 2);
        target.resize(head, 0);
        let level = Compression::new(level);
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(target, level);
                source.ranges().try_for_each(|range| encoder.write_all(range))?;
                encoder.finish()
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(target, level);
                source.ranges().try_for_each(|range| encoder.write_all(range))?;
                encoder.finish()
            }
        }
    }
}

/// An inflation in progress.
///
/// Invariant: `plain` neither holds nor reserves more than `limit` bytes plus one. That one byte shows that the
/// inflated bytes exceed the limit.
struct Inflater<R> {
    decoder: Decoder<R>,
    plain: Vec<u8>,
    limit: usize,
    /// Holds what was received, and `plain` as it is allocated.
    reservation: ByteReservation,
}

enum Decoder<R> {
    Gzip(MultiGzDecoder<R>),
    Deflate(ZlibDecoder<R>),
}

impl<R: BufRead> Inflater<R> {
    fn of_reader(coding: Coding, source: R, limit: usize, reservation: ByteReservation) -> Self {
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(source)),
            Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(source)),
        };
        Self { decoder, plain: Vec::new(), limit, reservation }
    }

    /// Writes at most `most` further bytes. Returns true if the end is reached.
    fn step(&mut self, most: usize) -> Result<bool, InflateError> {
        let start = self.plain.len();
        let room = most.min(self.limit.saturating_add(1) - start);
        self.reserve(room)?;
        self.plain.resize(start + room, 0);
        let mut end = start;
        while end < self.plain.len() {
            let read = match &mut self.decoder {
                Decoder::Gzip(decoder) => decoder.read(&mut self.plain[end..]),
                Decoder::Deflate(decoder) => decoder.read(&mut self.plain[end..]),
            };
            match read.map_err(|_| InflateError::Corrupt)? {
                0 => {
                    self.plain.truncate(end);
                    return Ok(true);
                }
                count => end += count,
            }
        }
        if end > self.limit { Err(InflateError::TooLarge) } else { Ok(false) }
    }

    /// Makes room for `room` bytes, or for as many as there are already, so that bytes are seldom moved.
    fn reserve(&mut self, room: usize) -> Result<(), BudgetExceeded> {
        let (len, capacity) = (self.plain.len(), self.plain.capacity());
        if capacity - len < room {
            let most = self.limit.saturating_add(1) - len;
            let additional = room.max(len).min(most);
            self.reservation.grow(len + additional - capacity)?;
            self.plain.reserve_exact(additional);
        }
        Ok(())
    }

    fn finish(mut self) -> (Bytes, ByteReservation) {
        // A short message must not hold a long buffer for as long as its request lives.
        if self.plain.capacity() / 2 > self.plain.len() {
            self.plain.shrink_to_fit();
        }
        self.reservation.shrink_to(self.plain.capacity());
        (self.plain.into(), self.reservation)
    }
}

#[cfg(feature = "fuzzing")]
#[path = "compression_fuzzing.rs"]
pub(crate) mod fuzzing;

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
