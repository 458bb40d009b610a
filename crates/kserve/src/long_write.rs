//! Long work on a response, such as the text of its elements: between two pieces it lets others work, and it reserves the
//! memory that the next piece fills.
use std::fmt;

use bytes::Bytes;
use vocabulary::{ByteReservation, Error, ErrorCode};

/// The most bytes of work on the network thread: JSON text, a gRPC message without its raw contents, or bytes that
/// inflation reads and writes.
pub const BRIEF: usize = 64 << 10;

/// The most bytes that work reads or writes before it lets others work.
pub const PIECE: usize = 64 << 10;

/// The most bytes of a part of a text. In one buffer a long text would be copied whenever the buffer grows, and the unused
/// end of the buffer would not be reserved.
const PART: usize = 1 << 20;

/// The writing of something long.
pub struct LongWrite<'w> {
    /// Lets others work. False if nobody wants the result any more.
    goes_on: &'w dyn Fn() -> bool,
    reservation: ByteReservation,
    /// The bytes of what is complete.
    kept: usize,
    /// The bytes of the current piece that are not used yet.
    left: usize,
    /// The beginning of the text that is being written. Its bytes are in `kept`.
    parts: Vec<Bytes>,
}

impl fmt::Debug for LongWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongWrite").field("reservation", &self.reservation).finish_non_exhaustive()
    }
}

impl<'w> LongWrite<'w> {
    /// Work that calls `goes_on` between two pieces, and ends if that returns false. What it writes is reserved in
    /// `reservation`.
    pub fn new(reservation: ByteReservation, goes_on: &'w dyn Fn() -> bool) -> Self {
        let kept = reservation.bytes();
        Self { goes_on, reservation, kept, left: 0, parts: Vec::new() }
    }

    /// Makes room for at most `next` bytes behind the `written` ones. Others work first, when a piece has been written.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without room. CANCELLED if nobody wants the result.
    pub fn make_room(&mut self, written: usize, next: usize) -> Result<(), Error> {
        if next > self.left {
            let piece = next.max(PIECE);
            self.reservation.grow_to(self.kept + written + piece)?;
            self.left = piece;
            if !(self.goes_on)() {
                return Err(Error::new(ErrorCode::Cancelled, "nobody waits for the response any more"));
            }
        }
        self.left -= next;
        Ok(())
    }

    /// Makes room for at most `next` bytes at the end of a text. When `text` is a whole part, `self` takes it, and leaves an
    /// empty buffer. [`LongWrite::keep_text`] returns all parts.
    ///
    /// # Errors
    /// As [`LongWrite::make_room`].
    pub fn make_room_in(&mut self, text: &mut Vec<u8>, next: usize) -> Result<(), Error> {
        self.make_room(text.len(), next)?;
        if !text.is_empty() && text.len() + next > PART {
            self.kept += text.len();
            self.parts.push(std::mem::replace(text, Vec::with_capacity(PART.max(next))).into());
        }
        Ok(())
    }

    /// The text is complete with this end. Returns its parts, in order.
    pub fn keep_text(&mut self, mut end: Vec<u8>) -> Vec<Bytes> {
        self.keep(end.len());
        let mut parts = std::mem::take(&mut self.parts);
        if !parts.is_empty() {
            // A client may leave the answer unread, and what is unused of the last part is not reserved.
            end.shrink_to_fit();
        }
        parts.push(end.into());
        parts
    }

    /// What is being written is complete, and has so many bytes.
    pub fn keep(&mut self, bytes: usize) {
        self.kept += bytes;
        self.left = 0;
    }

    /// The reservation of all that was written.
    pub fn into_reservation(mut self) -> ByteReservation {
        self.reservation.shrink_to(self.kept);
        self.reservation
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use vocabulary::ByteBudget;

    use super::*;

    #[test]
    fn each_piece_is_reserved_before_it_is_written() {
        let budget = ByteBudget::new(10 * PIECE);
        let rounds = Cell::new(0);
        let goes_on = || {
            rounds.set(rounds.get() + 1);
            rounds.get() < 7
        };
        let mut long = LongWrite::new(budget.reserve(100).unwrap(), &goes_on);
        for written in (0..2 * PIECE).step_by(16) {
            long.make_room(written, 16).unwrap();
            assert!(budget.used() >= 100 + written + 16 && budget.used() <= 100 + written + PIECE);
        }
        assert_eq!(rounds.get(), 2);
        long.keep(2 * PIECE);
        long.make_room(0, 5 * PIECE).unwrap();
        assert_eq!(budget.used(), 100 + 7 * PIECE);
        let refused = long.make_room(0, 9 * PIECE).unwrap_err();
        assert!(refused.message.contains("--max-inflight-bytes"));
        for _ in 0..3 {
            long.make_room(0, PIECE).unwrap();
        }
        assert_eq!(long.make_room(0, PIECE).unwrap_err().code, ErrorCode::Cancelled);
        assert_eq!(long.into_reservation().bytes(), 100 + 2 * PIECE);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_long_text_is_kept_in_parts_that_are_never_copied() {
        let budget = ByteBudget::new(3 * PART);
        let mut long = LongWrite::new(budget.reserve(100).unwrap(), &|| true);
        let (mut text, mut written) = (Vec::new(), Vec::new());
        let mut buffer = None;
        for round in 0..5 * PART / 2 / 1000 {
            long.make_room_in(&mut text, 1000).unwrap();
            if text.is_empty() && round > 0 {
                buffer = Some(text.as_ptr());
            }
            assert!(buffer.is_none_or(|buffer| buffer == text.as_ptr()), "the buffer does not grow");
            text.extend((0..1000).map(|byte| (round + byte) as u8));
            written.extend_from_slice(&text[text.len() - 1000..]);
            assert!(budget.used() >= 100 + written.len());
        }
        let parts = long.keep_text(text);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.len() <= PART));
        assert!(parts.concat() == written);
        assert_eq!(long.into_reservation().bytes(), 100 + written.len());
    }

    #[test]
    fn a_short_text_is_one_part() {
        let budget = ByteBudget::new(PART);
        let mut long = LongWrite::new(budget.reservation(), &|| true);
        let mut text = b"head".to_vec();
        long.make_room_in(&mut text, 10).unwrap();
        text.extend_from_slice(b" and end");
        assert_eq!(long.keep_text(text), [Bytes::from_static(b"head and end")]);
        let refused = long.make_room_in(&mut Vec::new(), 2 * PART).unwrap_err();
        assert!(refused.message.contains("--max-inflight-bytes"));
    }
}
