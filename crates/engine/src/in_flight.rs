//! Counts the requests of a model version that have not ended, and waits for the last of them.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};

/// Counts requests from acceptance to their last response (S-W41).
#[derive(Default)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    /// In one total order with `count`. So either the thread that ends the last request sees that the model drains, or
    /// the thread that drains the model sees no request.
    draining: AtomicBool,
    lock: Mutex<()>,
    /// Signalled when a request of a draining model has ended.
    ended: Condvar,
}

impl InFlight {
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Counts a request that the model has accepted.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    /// Counts the end of a request.
    pub(crate) fn end(&self) {
        let before = self.count.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a request ends once");
        if self.is_draining() {
            drop(self.lock.lock());
            self.ended.notify_all();
        }
    }

    /// Whether the model accepts no new requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }

    /// Marks that the model accepts no new requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, SeqCst);
    }

    /// Drains, and waits until every accepted request has ended. Blocks.
    pub(crate) fn wait_for_the_last(&self) {
        self.drain();
        let mut lock = self.lock.lock();
        self.ended.wait_while(&mut lock, |()| self.count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_request() {
        let in_flight = Arc::new(InFlight::default());
        in_flight.begin();
        in_flight.begin();
        let waiting = thread::spawn({
            let in_flight = in_flight.clone();
            move || in_flight.wait_for_the_last()
        });
        in_flight.end();
        assert!(!waiting.is_finished());
        in_flight.end();
        waiting.join().unwrap();
        in_flight.wait_for_the_last();
    }
}
