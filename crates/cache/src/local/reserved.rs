//! Memory that the cache has taken at its start, and that no entry has used yet.
use inference::lock::Mutex;

/// The memory goes back to the allocator in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Default)]
pub(super) struct ReservedMemory(Mutex<ReservedPieces>);

#[derive(Default)]
struct ReservedPieces {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl ReservedMemory {
    /// Takes so many bytes from the system. `None` if it does not give them.
    pub(super) fn of(bytes: usize) -> Option<Self> {
        let mut taken = ReservedPieces::default();
        while taken.bytes < bytes {
            let len = PIECE_BYTES.min(bytes - taken.bytes);
            let mut piece = Vec::new();
            piece.try_reserve_exact(len).ok()?;
            // The system gives a page when it is written.
            piece.resize(len, 1);
            taken.pieces.push(piece);
            taken.bytes += len;
        }
        Some(Self(Mutex::new(taken)))
    }

    /// The bytes that no entry has used.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Keeps so many bytes at most. Entries get the others from the allocator.
    pub(super) fn keep(&self, most: usize) {
        let mut given_back = Vec::new();
        let mut reserved = self.0.lock();
        while reserved.bytes > most
            && let Some(piece) = reserved.pieces.pop()
        {
            reserved.bytes -= piece.len();
            given_back.push(piece);
        }
        // The memory is freed without the lock.
        drop(reserved);
    }
}
