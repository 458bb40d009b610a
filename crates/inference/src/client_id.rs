//! Who reads responses.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One client for the count of unread responses: a connection, or one stream of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub(crate) u64);

impl ClientId {
    /// An id that is unique in the process.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}
