//! The only clock of the process, and the timer thread, which wakes timer targets at the times they ask for.
//!
//! Schedulers wait for microseconds. Tokio's timers have a resolution of one millisecond, which is too coarse. A thread
//! that waits on a condition variable with the smallest timer slack is late by about twenty microseconds. The thread
//! sleeps without a time limit when no target waits.
//!
//! All models share this thread, so it never runs code of a plug-in or of a program that embeds the server: such code
//! may block. If a target panics, the thread logs the panic and continues.
use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use inference::{
    Timestamp,
    lock::{Condvar, Mutex},
};
use rustix::time::{ClockId, clock_gettime};
use vocabulary::panic_message;

use crate::ThreadGroup;

/// The current time of CLOCK_MONOTONIC, the clock of every [`Timestamp`] in the process.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    Timestamp::from_nanos(nanos)
}

/// The time since 1970 by the clock of the system, which other servers have too.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What the timer thread can wake.
pub trait TimerTarget: Send + Sync {
    /// Called at the requested time. Must not block, and must not run code of a plug-in.
    fn wake(self: Arc<Self>);
}

/// Schedules wake-up calls. Cheap to clone; the thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct TimerThread {
    shared: Arc<TimerState>,
    _alive: Arc<Alive>,
}

struct TimerState {
    queue: Mutex<TimerQueue>,
    changed: Condvar,
}

/// Holds each timer target at most once. The target's address identifies it: the queue holds a weak reference, so the
/// address cannot be reused meanwhile.
#[derive(Default)]
struct TimerQueue {
    waiting: BTreeMap<(Timestamp, usize), Weak<dyn TimerTarget>>,
    wake_times: HashMap<usize, Timestamp>,
    over: bool,
}

/// Ends the thread when dropped.
struct Alive(Arc<TimerState>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl TimerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses to start one.
    pub fn start(threads: &ThreadGroup) -> std::io::Result<Self> {
        let shared = Arc::new(TimerState { queue: Mutex::default(), changed: Condvar::new() });
        let clock = shared.clone();
        threads.spawn(thread::Builder::new().name("clock".into()), move || clock.run())?;
        Ok(Self { _alive: Arc::new(Alive(shared.clone())), shared })
    }

    /// Ends the thread: no wake-up call comes any more.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Schedules a wake-up call of `timer_target` at `at`, or soon after.
    ///
    /// Only the earliest call of a target counts: the woken target checks its state and schedules the next call itself.
    /// Otherwise outdated calls would accumulate, and each would cause another one.
    pub fn wake_at(&self, at: Timestamp, timer_target: Weak<dyn TimerTarget>) {
        let mut queue = self.shared.queue.lock();
        let address = timer_target.as_ptr().cast::<()>().addr();
        let later = match queue.wake_times.get(&address) {
            Some(&earlier) if earlier <= at => return,
            later => later.copied(),
        };
        if let Some(later) = later {
            queue.waiting.remove(&(later, address));
        }
        let first = queue.waiting.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
        queue.wake_times.insert(address, at);
        queue.waiting.insert((at, address), timer_target);
        drop(queue);
        if first {
            self.shared.changed.notify_one();
        }
    }
}

impl TimerState {
    fn end(&self) {
        self.queue.lock().over = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        // Only a kernel that does not know the call refuses it. Its timers then have the usual resolution.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut queue = self.queue.lock();
        while !queue.over {
            let Some((&(at, address), _)) = queue.waiting.first_key_value() else {
                self.changed.wait(&mut queue);
                continue;
            };
            let left = at - now();
            if left > Duration::ZERO {
                self.changed.wait_for(&mut queue, left);
                continue;
            }
            let due = queue.waiting.pop_first();
            queue.wake_times.remove(&address);
            inference::lock::MutexGuard::unlocked(&mut queue, || {
                if let Some(timer_target) = due.and_then(|(_, timer_target)| timer_target.upgrade()) {
                    wake_here(timer_target);
                }
            });
        }
    }
}

/// Wakes the target on this thread. Also drops the last reference to the target, if this is the last one.
fn wake_here(timer_target: Arc<dyn TimerTarget>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| timer_target.wake())) {
        log::error!("a wake-up call led to a panic: {}", panic_message(&*panic));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct TestTarget(Mutex<mpsc::Sender<(u32, Timestamp)>>, u32);
    impl TimerTarget for TestTarget {
        fn wake(self: Arc<Self>) {
            self.0.lock().send((self.1, now())).unwrap();
        }
    }

    #[test]
    fn calls_are_made_in_order_and_never_early() {
        let clock = TimerThread::start(&ThreadGroup::default()).unwrap();
        let (sender, heard) = mpsc::channel();
        let targets: Vec<Arc<dyn TimerTarget>> = (0..3)
            .map(|n| Arc::new(TestTarget(Mutex::new(sender.clone()), n)) as Arc<dyn TimerTarget>)
            .collect();
        let start = now();
        for (test_target, after) in targets.iter().zip([3_000, 1_000, 2_000]) {
            clock.wake_at(start + Duration::from_micros(after), Arc::downgrade(test_target));
        }
        for (expected, after) in [(1, 1_000), (2, 2_000), (0, 3_000)] {
            let (test_target, at) = heard.recv().unwrap();
            assert_eq!(test_target, expected);
            assert!(at >= start + Duration::from_micros(after));
        }
    }

    #[test]
    fn only_the_earliest_wake_up_of_a_target_counts() {
        let clock = TimerThread::start(&ThreadGroup::default()).unwrap();
        let (sender, heard) = mpsc::channel();
        let targets =
            [0, 1].map(|n| Arc::new(TestTarget(Mutex::new(sender.clone()), n)) as Arc<dyn TimerTarget>);
        let start = now();
        for (test_target, after) in [(0, 4), (0, 2), (0, 3), (0, 2), (1, 5), (1, 6)] {
            clock.wake_at(start + Duration::from_millis(after), Arc::downgrade(&targets[test_target]));
        }
        assert_eq!([heard.recv().unwrap().0, heard.recv().unwrap().0], [0, 1]);
        clock.wake_at(start, Arc::downgrade(&targets[0]));
        assert_eq!(heard.recv().unwrap().0, 0, "one that was woken may ask again");
        let queue = clock.shared.queue.lock();
        assert!(queue.waiting.is_empty() && queue.wake_times.is_empty());
    }

    struct Unwell;
    impl TimerTarget for Unwell {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_target_that_panics_does_not_affect_others() {
        let clock = TimerThread::start(&ThreadGroup::default()).unwrap();
        let unwell: Arc<dyn TimerTarget> = Arc::new(Unwell);
        let (sender, heard) = mpsc::channel();
        let test_target: Arc<dyn TimerTarget> = Arc::new(TestTarget(Mutex::new(sender), 1));
        let start = now();
        clock.wake_at(start, Arc::downgrade(&unwell));
        clock.wake_at(start + Duration::from_micros(1), Arc::downgrade(&test_target));
        assert_eq!(heard.recv().unwrap().0, 1);
    }

    #[test]
    fn the_thread_ends_with_the_last_handle() {
        let clock = TimerThread::start(&ThreadGroup::default()).unwrap();
        let shared = Arc::downgrade(&clock.shared);
        let (sender, _heard) = mpsc::channel();
        let test_target: Arc<dyn TimerTarget> = Arc::new(TestTarget(Mutex::new(sender), 0));
        clock.wake_at(now() + Duration::from_secs(3600), Arc::downgrade(&test_target));
        drop(clock);
        // The thread holds the last reference. The test hangs at this line if the thread never ends.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
