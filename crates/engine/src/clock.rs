//! The one clock of the process, and the one thread that wakes whoever asked for a moment.
//!
//! Schedulers wait for microseconds, which tokio's timers (a millisecond apart) cannot do: a thread on a condition
//! variable with the smallest timer slack overshoots by some twenty microseconds. It sleeps for ever when nothing waits.
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use inference::Moment;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

/// Now, by CLOCK_MONOTONIC.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    Moment::from_nanos(nanos)
}

/// Whoever can be woken.
pub(crate) trait Sleeper: Send + Sync {
    /// The moment has come. Must not block.
    fn wake(self: Arc<Self>);
}

/// Hands out wake-up calls. Cheap to clone; the thread ends when the last handle is gone.
#[derive(Clone)]
pub(crate) struct AlarmClock {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

struct Shared {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    /// By moment, then in the order they were asked for.
    waiting: BTreeMap<(Moment, u64), Weak<dyn Sleeper>>,
    asked: u64,
    over: bool,
}

/// Ends the thread when dropped.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.calls.lock().over = true;
        self.0.changed.notify_one();
    }
}

impl AlarmClock {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared { calls: Mutex::default(), changed: Condvar::new() });
        let clock = shared.clone();
        thread::Builder::new().name("clock".into()).spawn(move || clock.run())?;
        Ok(Self { _alive: Arc::new(Alive(shared.clone())), shared })
    }

    /// Asks for `sleeper` to be woken at `at`, or soon after.
    pub(crate) fn call(&self, at: Moment, sleeper: Weak<dyn Sleeper>) {
        let mut calls = self.shared.calls.lock();
        let first = calls.waiting.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
        calls.asked += 1;
        let key = (at, calls.asked);
        calls.waiting.insert(key, sleeper);
        drop(calls);
        if first {
            self.shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        // Refused only by kernels that do not know the call; timers are then as coarse as anybody's.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut calls = self.calls.lock();
        while !calls.over {
            let Some((&(at, _), _)) = calls.waiting.first_key_value() else {
                self.changed.wait(&mut calls);
                continue;
            };
            let left = at - now();
            if left > Duration::ZERO {
                self.changed.wait_for(&mut calls, left);
                continue;
            }
            let due = calls.waiting.pop_first();
            parking_lot::MutexGuard::unlocked(&mut calls, || {
                if let Some(sleeper) = due.and_then(|(_, sleeper)| sleeper.upgrade()) {
                    sleeper.wake();
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Bell(Mutex<mpsc::Sender<(u32, Moment)>>, u32);
    impl Sleeper for Bell {
        fn wake(self: Arc<Self>) {
            self.0.lock().send((self.1, now())).unwrap();
        }
    }

    #[test]
    fn calls_are_made_in_order_and_never_early() {
        let clock = AlarmClock::start().unwrap();
        let (sender, heard) = mpsc::channel();
        let bells: Vec<Arc<dyn Sleeper>> =
            (0..3).map(|n| Arc::new(Bell(Mutex::new(sender.clone()), n)) as Arc<dyn Sleeper>).collect();
        let start = now();
        for (bell, after) in bells.iter().zip([3_000, 1_000, 2_000]) {
            clock.call(start + Duration::from_micros(after), Arc::downgrade(bell));
        }
        for (expected, after) in [(1, 1_000), (2, 2_000), (0, 3_000)] {
            let (bell, at) = heard.recv().unwrap();
            assert_eq!(bell, expected);
            assert!(at >= start + Duration::from_micros(after));
        }
    }
}
