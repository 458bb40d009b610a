//! How many bytes of tensors have been copied.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes copied between requests and library since the start, for tests and benchmarks.
#[derive(Debug, Default)]
pub struct CopiedBytes(AtomicU64);

impl CopiedBytes {
    /// Adds to the count.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
    }

    /// The count.
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
