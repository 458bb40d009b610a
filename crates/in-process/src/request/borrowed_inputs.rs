//! Input memory that the application owns.
use std::{any::Any, ptr::NonNull, sync::Arc};

use bytes::Bytes;
use vocabulary::DeviceRange;

/// Whoever holds it may read the memory of the inputs.
pub(crate) type MemoryOwner = Arc<dyn Any + Send + Sync>;

/// A piece of input memory that the application owns.
#[derive(Debug, Clone, Copy)]
pub(super) enum BorrowedInput {
    /// Memory of the host.
    Host(BorrowedHostInput),
    /// Memory of the GPU with that number.
    Gpu(i64, DeviceRange),
}

impl BorrowedInput {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Host(piece) => piece.len,
            Self::Gpu(_, piece) => piece.byte_size,
        }
    }
}

/// A piece of host memory that the application owns.
#[derive(Debug, Clone, Copy)]
pub(super) struct BorrowedHostInput {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the application does not change the memory until the request is given back; any thread may read it.
unsafe impl Send for BorrowedHostInput {}
// SAFETY: the same.
unsafe impl Sync for BorrowedHostInput {}

impl BorrowedHostInput {
    /// # Safety
    /// That many bytes are readable at that address while the server uses a request that has the piece.
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// The same memory as a shared buffer, without copying it.
    pub(super) fn lend(self, owner: &MemoryOwner) -> Bytes {
        Bytes::from_owner(BorrowedBuffer { piece: self, _owner: owner.clone() })
    }
}

struct BorrowedBuffer {
    piece: BorrowedHostInput,
    _owner: MemoryOwner,
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the application does not change the memory while the owner is held.
        unsafe { std::slice::from_raw_parts(self.piece.base.as_ptr(), self.piece.len) }
    }
}
