//! The one clock of the process, and the one thread that wakes whoever asked for a moment.
//!
//! Schedulers wait for microseconds, which tokio's timers (a millisecond apart) cannot do: a thread on a condition
//! variable with the smallest timer slack overshoots by some twenty microseconds. It sleeps for ever when nothing waits.
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use inference::Timestamp;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

/// Now, by CLOCK_MONOTONIC: the clock of every [`Timestamp`] in the process.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    Timestamp::from_nanos(nanos)
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

/// Each sleeper is in here at most once. Its address tells who it is: as long as it is in here, the address is taken.
#[derive(Default)]
struct Calls {
    waiting: BTreeMap<(Timestamp, usize), Weak<dyn Sleeper>>,
    moments: HashMap<usize, Timestamp>,
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
    ///
    /// Only its earliest call counts: whoever is woken looks around and asks again. Otherwise calls that have become
    /// pointless would pile up, and each would lead to another one.
    pub(crate) fn call(&self, at: Timestamp, sleeper: Weak<dyn Sleeper>) {
        let mut calls = self.shared.calls.lock();
        let address = sleeper.as_ptr().cast::<()>().addr();
        let later = match calls.moments.get(&address) {
            Some(&earlier) if earlier <= at => return,
            later => later.copied(),
        };
        if let Some(later) = later {
            calls.waiting.remove(&(later, address));
        }
        let first = calls.waiting.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
        calls.moments.insert(address, at);
        calls.waiting.insert((at, address), sleeper);
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
            let Some((&(at, address), _)) = calls.waiting.first_key_value() else {
                self.changed.wait(&mut calls);
                continue;
            };
            let left = at - now();
            if left > Duration::ZERO {
                self.changed.wait_for(&mut calls, left);
                continue;
            }
            let due = calls.waiting.pop_first();
            calls.moments.remove(&address);
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

    struct Bell(Mutex<mpsc::Sender<(u32, Timestamp)>>, u32);
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

    #[test]
    fn only_the_earliest_call_of_a_sleeper_counts() {
        let clock = AlarmClock::start().unwrap();
        let (sender, heard) = mpsc::channel();
        let bells = [0, 1].map(|n| Arc::new(Bell(Mutex::new(sender.clone()), n)) as Arc<dyn Sleeper>);
        let start = now();
        for (bell, after) in [(0, 4), (0, 2), (0, 3), (0, 2), (1, 5), (1, 6)] {
            clock.call(start + Duration::from_millis(after), Arc::downgrade(&bells[bell]));
        }
        assert_eq!([heard.recv().unwrap().0, heard.recv().unwrap().0], [0, 1]);
        clock.call(start, Arc::downgrade(&bells[0]));
        assert_eq!(heard.recv().unwrap().0, 0, "one that was woken may ask again");
        let calls = clock.shared.calls.lock();
        assert!(calls.waiting.is_empty() && calls.moments.is_empty());
    }

    #[test]
    fn the_thread_ends_with_the_last_handle() {
        let clock = AlarmClock::start().unwrap();
        let shared = Arc::downgrade(&clock.shared);
        let (sender, _heard) = mpsc::channel();
        let bell: Arc<dyn Sleeper> = Arc::new(Bell(Mutex::new(sender), 0));
        clock.call(now() + Duration::from_secs(3600), Arc::downgrade(&bell));
        drop(clock);
        // The thread holds the last of it; that it never ends is what would hang here.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
