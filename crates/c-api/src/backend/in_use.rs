//! Keeps an instance alive while the library still uses its requests, responses or response factories, or is asked about
//! it.
//!
//! A library may release a request after the request was executed and answered. The instance and the model are
//! finalized only when the library has released everything, however long that takes: a stream may last for hours. Only
//! the stop of the server has a limit.
use std::{
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use inference::lock::{Condvar, Mutex};
use tokio::sync::Notify;

/// Counts the objects of one instance that the library holds. Those of other instances do not hold up its end.
#[derive(Debug, Default)]
pub(super) struct InUseCount {
    count: AtomicUsize,
    /// The server stops, and waits no longer.
    is_abandoned: AtomicBool,
    waiting: Mutex<()>,
    /// Signalled when the count is 0, for threads and for tasks.
    returned: Condvar,
    returned_for_tasks: Notify,
}

impl InUseCount {
    /// Counts one more object that the library holds.
    pub(super) fn hold(self: &Arc<Self>) -> InUseGuard {
        self.count.fetch_add(1, Ordering::Relaxed);
        InUseGuard(self.clone())
    }

    /// The number of objects that the library holds.
    fn held(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until the library has released all objects. If that takes longer than `tell_after`, calls `tell` once with the
    /// number of those that are left. Blocks.
    pub(super) fn wait(&self, tell_after: Duration, tell: impl FnOnce(usize)) {
        let is_used = |(): &mut ()| self.held() > 0 && !self.is_abandoned.load(Ordering::Acquire);
        let deadline = Instant::now() + tell_after;
        let mut waiting = self.waiting.lock();
        if !self.returned.wait_while_until(&mut waiting, is_used, deadline).timed_out() {
            return;
        }
        tell(self.held());
        self.returned.wait_while(&mut waiting, is_used);
    }

    /// From now on, nobody waits for the library.
    fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        drop(self.waiting.lock());
        self.returned.notify_all();
    }

    /// Returns when the library has released all objects.
    pub(super) async fn released(&self) {
        loop {
            // Listens before it looks: an object that is released after the look is heard of.
            let mut returned = pin!(self.returned_for_tasks.notified());
            returned.as_mut().enable();
            if self.held() == 0 {
                return;
            }
            returned.await;
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
            self.0.returned_for_tasks.notify_waiters();
        }
    }
}

/// The counts of all instances of a model, also of those that wait for their end.
#[derive(Debug, Default)]
pub(super) struct InUseCounts(Mutex<Vec<Weak<InUseCount>>>);

impl InUseCounts {
    /// The count of a new instance.
    pub(super) fn add(&self) -> Arc<InUseCount> {
        let count = Arc::<InUseCount>::default();
        let mut counts = self.0.lock();
        counts.retain(|count| count.strong_count() > 0);
        counts.push(Arc::downgrade(&count));
        count
    }

    /// From now on, no end of an instance waits for the library.
    pub(super) fn abandon(&self) {
        let counts: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        counts.iter().for_each(|count| count.abandon());
    }

    /// Returns when the library has released all objects of the instances that exist now.
    pub(super) fn released(&self) -> impl Future<Output = ()> + Send + use<> {
        let counts: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        async move {
            for count in counts {
                count.released().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        task::{Context, Waker},
    };

    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn the_wait_ends_when_the_last_guard_is_dropped() {
        let in_use = Arc::new(InUseCount::default());
        let never = |_| unreachable!("the time is not over");
        in_use.wait(FOR_EVER, never);
        let (first, second) = (in_use.hold(), in_use.hold());
        let waiter = std::thread::spawn({
            let in_use = in_use.clone();
            move || in_use.wait(FOR_EVER, never)
        });
        drop(first);
        drop(second);
        waiter.join().unwrap();
    }

    #[test]
    fn a_long_wait_is_told_and_goes_on() {
        let in_use = Arc::new(InUseCount::default());
        let held = in_use.hold();
        let (tell, reported) = mpsc::channel();
        let waiter = std::thread::spawn({
            let in_use = in_use.clone();
            move || in_use.wait(Duration::ZERO, |left| tell.send(left).unwrap())
        });
        assert_eq!(reported.recv(), Ok(1));
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().unwrap();
    }

    #[test]
    fn a_task_hears_of_the_last_object_of_all_instances() {
        let counts = InUseCounts::default();
        let (one, other) = (counts.add(), counts.add());
        let (first, second) = (one.hold(), other.hold());
        let mut released = pin!(counts.released());
        let mut context = Context::from_waker(Waker::noop());
        assert!(released.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(released.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(released.as_mut().poll(&mut context).is_ready());
    }
}
