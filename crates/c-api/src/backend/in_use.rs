//! Keeps an instance alive while the library still uses its requests, responses or response factories, or is asked about
//! it.
//!
//! A library may release a request after the request was executed and answered. The instance and the model are
//! finalized only when the library has released everything. There is a time limit, because a library may forget to
//! release: Triton's Python backend forgets the factories of requests whose process has died.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use inference::lock::{Condvar, Mutex};

/// Counts the objects of one instance that the library holds. Those of other instances do not hold up its end.
#[derive(Debug, Default)]
pub(super) struct InUseCount {
    count: AtomicUsize,
    waiting: Mutex<()>,
    returned: Condvar,
}

impl InUseCount {
    /// Counts one more object that the library holds.
    pub(super) fn hold(self: &Arc<Self>) -> InUseGuard {
        self.count.fetch_add(1, Ordering::Relaxed);
        InUseGuard(self.clone())
    }

    /// Returns the number of objects that the library still holds: 0 as soon as it has released all, or the rest after
    /// the timeout. Blocks.
    pub(super) fn wait(&self, timeout: Duration) -> usize {
        let end = Instant::now() + timeout;
        let mut waiting = self.waiting.lock();
        loop {
            let left = self.count.load(Ordering::Acquire);
            if left == 0 || self.returned.wait_until(&mut waiting, end).timed_out() {
                return left;
            }
        }
    }
}

/// One object that the library holds.
#[derive(Debug)]
pub(super) struct InUseGuard(Arc<InUseCount>);

impl InUseGuard {
    /// Counts one more object of the same instance.
    pub(super) fn another(&self) -> Self {
        self.0.hold()
    }
}

impl Drop for InUseGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The lock is held, so that a thread that has just read the count and begins to wait does not miss this.
            drop(self.0.waiting.lock());
            self.0.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_when_the_last_guard_is_dropped() {
        let in_use = Arc::new(InUseCount::default());
        let for_ever = Duration::from_secs(3600);
        assert_eq!(in_use.wait(for_ever), 0);
        let (first, second) = (in_use.hold(), in_use.hold());
        let waiter = std::thread::spawn({
            let in_use = in_use.clone();
            move || in_use.wait(for_ever)
        });
        drop(first);
        drop(second);
        assert_eq!(waiter.join().unwrap(), 0);
    }

    #[test]
    fn the_wait_ends_after_its_timeout_if_a_guard_is_leaked() {
        let in_use = Arc::new(InUseCount::default());
        let (_forgotten, returned) = (in_use.hold(), in_use.hold());
        drop(returned);
        assert_eq!(in_use.wait(Duration::from_millis(1)), 1);
    }
}
