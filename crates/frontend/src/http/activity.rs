//! What a connection is doing: whether it reads a head, waits, or answers requests.
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::port::StreamProgress;

/// The activity of a connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    /// The number of requests begun plus the number of requests ended.
    rounds: AtomicUsize,
    busy: AtomicUsize,
    /// A request was answered, and the server has not read its body to the end.
    leaves_body: AtomicBool,
    /// `has_read` is true if bytes have come since the last request began or ended. Initially true, so that the time
    /// limit of the first head starts with the connection.
    pub(super) stream: Arc<StreamProgress>,
}

/// A request that the server is answering, up to the last byte of the response body.
#[derive(Debug)]
pub(super) struct OpenRequestGuard(Arc<ConnectionActivity>);

impl Default for ConnectionActivity {
    fn default() -> Self {
        let stream = StreamProgress { has_read: true.into(), ..StreamProgress::default() };
        let (rounds, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { rounds, busy, leaves_body: AtomicBool::new(false), stream: Arc::new(stream) }
    }
}

impl ConnectionActivity {
    pub(super) fn begin(self: &Arc<Self>) -> OpenRequestGuard {
        self.stream.has_read.store(false, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        OpenRequestGuard(self.clone())
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// The number of writes to the client.
    pub(super) fn writes(&self) -> usize {
        self.stream.writes.load(Ordering::Relaxed)
    }

    /// Tells whether the client may still send the body of a request that has its answer.
    pub(super) fn leaves_body(&self) -> bool {
        self.leaves_body.load(Ordering::Relaxed)
    }

    /// Tells whether a part of a head has arrived.
    pub(super) fn is_reading_head(&self) -> bool {
        self.stream.has_read.load(Ordering::Relaxed) && self.is_idle()
    }

    /// Tells whether nothing of a request is here: no part of a head, and no bytes that wait for the client.
    pub(super) fn is_between_requests(&self) -> bool {
        self.is_idle() && !self.is_reading_head() && !self.stream.is_writing.load(Ordering::Relaxed)
    }
}

impl OpenRequestGuard {
    /// The answer does not wait for the rest of the body: the request is the last of its connection.
    pub(super) fn leave_body(&self) {
        self.0.leaves_body.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenRequestGuard {
    fn drop(&mut self) {
        self.0.stream.has_read.store(false, Ordering::Relaxed);
        self.0.rounds.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
