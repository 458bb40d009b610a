//! How much of a reply hyper gets at a time.
//!
//! A call is ended if its client does not take a piece within the write time-out, so a slow client needs small pieces. Each
//! piece costs a system call, so a quick client needs large ones. h2 may hold one piece of a call that hyper has finished,
//! if the client does not open its window.
use std::time::Duration;

use bytes::Buf;
use tokio::time::Instant;

use crate::chunks::Chunks;

/// The smallest size of a piece that is not the last one, in bytes.
const SMALLEST: usize = 64 << 10;
/// The largest size of a piece, in bytes.
const LARGEST: usize = 512 << 10;

/// Pieces grow while the client takes each of them within this time, and shrink otherwise.
const QUICK: Duration = Duration::from_secs(1);

/// Cuts a reply into pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    size: usize,
    /// When the last piece was given. `None` before the first long reply.
    last_piece_at: Option<Instant>,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self { size: SMALLEST, last_piece_at: None }
    }

    /// The next piece of `reply`. hyper asks for it when the client has taken the piece before.
    pub(crate) fn next(&mut self, reply: &mut Chunks) -> Chunks {
        // Brief replies do not read the clock.
        if reply.remaining() > SMALLEST {
            self.adapt(Instant::now());
        }
        reply.take_front(self.size)
    }

    fn adapt(&mut self, now: Instant) {
        let Some(last_piece_at) = self.last_piece_at.replace(now) else { return };
        self.size = if now - last_piece_at <= QUICK { (2 * self.size).min(LARGEST) } else { SMALLEST };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_while_the_client_is_quick() {
        let (mut pieces, mut now) = (Pieces::new(), Instant::now());
        let mut sizes = Vec::new();
        for seconds in [0, 1, 1, 0, 0, 0, 2, 1] {
            now += Duration::from_secs(seconds);
            pieces.adapt(now);
            sizes.push(pieces.size >> 10);
        }
        assert_eq!(sizes, [64, 128, 256, 512, 512, 512, 64, 128]);
    }

    #[test]
    fn the_pieces_are_the_reply() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| index.to_le_bytes()[1]).collect();
        let mut reply = Chunks::from(bytes::Bytes::from(bytes.clone()));
        let (mut pieces, mut joined) = (Pieces::new(), Vec::new());
        while reply.has_remaining() {
            let mut piece = pieces.next(&mut reply);
            assert!(piece.remaining() <= LARGEST);
            joined.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        assert!(joined == bytes);
    }
}
