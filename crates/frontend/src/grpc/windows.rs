//! The windows of HTTP/2: the bytes that a client may send before its calls have read them.
//!
//! A call reserves the bytes that it reads in the server's budget. What it has not read is in no reservation, so the windows
//! bound it. hyper does not let a server change the windows of a connection that runs. Therefore each connection gets its
//! windows when it begins, from an amount that all connections share (ADR 0055).
use std::sync::Arc;

use vocabulary::{ByteBudget, ByteReservation};

/// The smallest window of a connection, in bytes. It is in no budget: the number of connections has a limit.
const MIN_WINDOW: usize = 128 << 10;

/// The largest window of a connection, in bytes. It does not limit a client that is 10 milliseconds away and sends a
/// gigabyte in each second.
const MAX_WINDOW: usize = 16 << 20;

/// A connection gets this part of what is left.
const SHARE: usize = 64;

/// All windows together have this part of the bytes that requests may have.
const PART: usize = 8;

/// The largest frame that a client may send, in bytes, if its window is larger.
const MAX_FRAME: usize = 1 << 20;

/// The bytes that the windows of all connections share.
pub(super) struct WindowBudget(Arc<ByteBudget>);

/// The windows of one connection, which gives them back at its end.
pub(super) struct ConnectionWindows {
    bytes: usize,
    _reservation: ByteReservation,
}

impl WindowBudget {
    /// The windows of a server whose requests may have `inflight_bytes` bytes.
    pub(super) fn beside(inflight_bytes: usize) -> Self {
        Self(ByteBudget::new(inflight_bytes / PART))
    }

    /// The windows of a new connection.
    pub(super) fn open(&self) -> ConnectionWindows {
        let left = self.0.limit().saturating_sub(self.0.used());
        let wanted = (left / SHARE).min(MAX_WINDOW);
        if wanted > MIN_WINDOW
            && let Ok(reservation) = self.0.reserve(wanted)
        {
            return ConnectionWindows { bytes: wanted, _reservation: reservation };
        }
        ConnectionWindows { bytes: MIN_WINDOW, _reservation: self.0.reservation() }
    }
}

impl ConnectionWindows {
    /// The bytes that all calls of the connection together have not read.
    pub(super) fn connection(&self) -> u32 {
        to_u32(self.bytes)
    }

    /// The bytes that one call has not read: half, so that a call that rests leaves a window for others.
    pub(super) fn stream(&self) -> u32 {
        to_u32(self.bytes / 2)
    }

    /// The largest frame. A frame is kept until it has arrived completely.
    pub(super) fn frame(&self) -> u32 {
        to_u32((self.bytes / 2).min(MAX_FRAME))
    }

    /// The largest list of headers that h2 reads. The call of a larger one ends with the status 431 of HTTP, and at four
    /// times the size h2 ends the connection. It is as large as a frame, so that it needs no other memory.
    pub(super) fn head(&self) -> u32 {
        self.frame()
    }
}

/// Windows are far below 2^32 bytes.
fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_windows_together_are_within_their_part_and_the_smallest_windows() {
        for inflight in [0, 10_000, 64 << 20, 4 << 30, 64 << 30] {
            let budget = WindowBudget::beside(inflight);
            let open: Vec<_> = (0..10_000).map(|_| budget.open()).collect();
            let all: usize = open.iter().map(|windows| windows.bytes).sum();
            assert!(all <= inflight / PART + open.len() * MIN_WINDOW, "{inflight}: {all}");
            drop(open);
            assert_eq!(budget.0.used(), 0);
        }
    }

    #[test]
    fn the_first_connections_have_wide_windows_and_many_leave_some_to_the_next() {
        let budget = WindowBudget::beside(8 << 30);
        let first = budget.open();
        assert_eq!((first.connection(), first.stream(), first.frame()), (16 << 20, 8 << 20, 1 << 20));
        let open: Vec<_> = (0..100).map(|_| budget.open()).collect();
        assert!(open.last().is_some_and(|last| last.bytes > 1 << 20));
        let narrow = WindowBudget::beside(0).open();
        assert_eq!((narrow.connection(), narrow.stream(), narrow.frame()), (128 << 10, 64 << 10, 64 << 10));
    }
}
