//! What keeps a model alive: requests and response factories in a library's hands, and questions to it.
//!
//! A library may release a request long after it was executed. Its instance and its model are finalized only when the
//! last one has come back.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::{Condvar, Mutex};

/// Counts what the library holds of one model.
#[derive(Debug, Default)]
pub(super) struct Held {
    count: AtomicUsize,
    waiting: Mutex<()>,
    returned: Condvar,
}

impl Held {
    /// One thing more is in the library's hands.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        self.count.fetch_add(1, Ordering::Relaxed);
        Hold(self.clone())
    }

    /// Returns when everything has come back. Blocks.
    pub(super) fn wait(&self) {
        let mut waiting = self.waiting.lock();
        while self.count.load(Ordering::Acquire) > 0 {
            self.returned.wait(&mut waiting);
        }
    }
}

/// One thing in the library's hands.
#[derive(Debug)]
pub(super) struct Hold(Arc<Held>);

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Under the lock, so that whoever has just found one left does not miss it.
            drop(self.0.waiting.lock());
            self.0.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_last_hold_is_dropped() {
        let held = Arc::new(Held::default());
        held.wait();
        let (first, second) = (held.hold(), held.hold());
        let waiter = std::thread::spawn({
            let held = held.clone();
            move || held.wait()
        });
        drop(first);
        drop(second);
        waiter.join().unwrap();
    }
}
