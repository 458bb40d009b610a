//! Memory of a state that a model reads and writes in place.
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use crate::TensorData;

/// Memory that a library reads and writes in place, by its address. Clones are the same memory.
///
/// The bytes are atomic, because a library writes them while others own the memory: no reference to plain bytes could
/// live beside that.
#[derive(Debug, Clone)]
pub struct StateBuffer(Arc<Vec<AtomicU8>>);

impl StateBuffer {
    /// So many zeros; `None` if there is not so much memory.
    pub fn zeroed(byte_size: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(byte_size).ok()?;
        bytes.resize_with(byte_size, AtomicU8::default);
        Some(Self(Arc::new(bytes)))
    }

    /// A copy of a tensor's bytes.
    pub(super) fn copied_from(data: &TensorData) -> Self {
        let bytes = data.pieces().iter().flat_map(|piece| piece.iter().copied().map(AtomicU8::new));
        Self(Arc::new(bytes.collect()))
    }

    /// How many bytes there are.
    pub fn byte_size(&self) -> usize {
        self.0.len()
    }

    /// Where the bytes lie, for reading and writing, as long as a clone lives. One thread writes at a time, and nobody
    /// reads meanwhile.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    /// A copy of the bytes as they are now.
    pub(super) fn content(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Relaxed)).collect()
    }
}
