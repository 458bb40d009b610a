//! Long work on a response, such as the text of its elements: between two pieces it lets others work, and it reserves the
//! memory that the next piece fills.
use std::fmt;

use vocabulary::{ByteReservation, Error, ErrorCode};

/// The most bytes of work on the network thread: JSON text, a gRPC message without its raw contents, or bytes that
/// inflation reads and writes.
pub const BRIEF: usize = 64 << 10;

/// The most bytes that work reads or writes before it lets others work.
pub const PIECE: usize = 64 << 10;

/// The writing of something long.
pub struct LongWrite<'w> {
    /// Lets others work. False if nobody wants the result any more.
    goes_on: &'w dyn Fn() -> bool,
    reservation: ByteReservation,
    /// The bytes of what is complete.
    kept: usize,
    /// The bytes of the current piece that are not used yet.
    left: usize,
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
        Self { goes_on, reservation, kept, left: 0 }
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
}
