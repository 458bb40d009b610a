//! Polls a task again at once if it has woken itself.
//!
//! The parts of one connection communicate through channels: the part that reads the body wakes the part that reads the
//! socket. Both parts belong to the same task. The runtime treats such a wake-up as new work: it puts the task at the
//! end of its queue and wakes another thread to help. The other thread finds no work. For a request of ten microseconds
//! this wake-up takes most of the time.
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Release},
    },
    task::{Context, Poll, Wake, Waker},
};

use atomics::{AtomicU8, AtomicWaker};

use super::io_turn::yield_turn;

/// The usual atomics.
#[cfg(not(feature = "loom"))]
mod atomics {
    pub(super) use std::sync::atomic::AtomicU8;

    pub(super) use futures_util::task::AtomicWaker;
}

/// The atomics of the model checker.
#[cfg(feature = "loom")]
mod atomics {
    pub(super) use loom::sync::atomic::AtomicU8;

    #[derive(Debug, Default)]
    pub(super) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(super) fn register(&self, waker: &std::task::Waker) {
            self.0.register_by_ref(waker);
        }

        pub(super) fn wake(&self) {
            self.0.wake();
        }
    }
}

/// Runs a task. If a wake-up comes during a poll, the task is polled again, a few times, before the runtime gets the
/// wake-up.
pub(crate) async fn with_inline_wake<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    let inline_waker = Arc::new(InlineWaker::default());
    let waker = Waker::from(inline_waker.clone());
    poll_fn(move |context| {
        inline_waker.runtime.register(context.waker());
        let mut own = Context::from_waker(&waker);
        for _ in 0..ROUNDS {
            // The acquire makes the writes before all wake-ups so far visible to this poll.
            inline_waker.state.swap(POLLED, AcqRel);
            if let Poll::Ready(output) = task.as_mut().poll(&mut own) {
                return Poll::Ready(output);
            }
            if inline_waker.state.compare_exchange(POLLED, RESTING, AcqRel, Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        inline_waker.state.store(RESTING, Release);
        yield_turn(context);
        Poll::Pending
    })
    .await
}

/// If a task keeps waking itself, its turn ends after this many polls.
const ROUNDS: usize = 8;

const RESTING: u8 = 0;
/// The task is being polled.
const POLLED: u8 = 1;
/// A wake-up has come since the poll began, or since the task became idle.
const RUNG: u8 = 2;

/// The waker of the task.
#[derive(Default)]
struct InlineWaker {
    state: AtomicU8,
    runtime: AtomicWaker,
}

impl Wake for InlineWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A polling task checks the flag before it becomes idle. An idle task is woken only once.
        if self.state.fetch_or(RUNG, AcqRel) == RESTING {
            self.runtime.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Polls once. Returns how often the runtime's waker was called, and the result of the poll.
    fn polled<T>(task: impl Future<Output = T>) -> (usize, Poll<T>) {
        let calls = Arc::new(Counted::default());
        let waker = Waker::from(calls.clone());
        let outcome = pin!(with_inline_wake(task)).poll(&mut Context::from_waker(&waker));
        (calls.0.load(SeqCst), outcome)
    }

    /// A task that wakes itself this many times before it is ready.
    fn self_waking(mut wakes: usize) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            if wakes == 0 {
                return Poll::Ready(());
            }
            wakes -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn a_task_that_wakes_itself_is_polled_without_the_runtime() {
        assert_eq!(polled(self_waking(ROUNDS - 1)), (0, Poll::Ready(())));
    }

    #[test]
    fn a_task_that_always_wakes_itself_yields() {
        assert_eq!(polled(self_waking(usize::MAX)), (1, Poll::Pending));
    }

    #[test]
    fn a_wake_up_from_another_thread_repeats_the_current_poll() {
        let mut was_here = false;
        let task = poll_fn(move |context: &mut Context<'_>| {
            if std::mem::replace(&mut was_here, true) {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            Poll::Pending
        });
        assert_eq!(polled(task), (0, Poll::Ready(())));
    }

    #[test]
    fn a_wake_up_between_polls_reaches_the_runtime() {
        let calls = Arc::new(Counted::default());
        let waker = Waker::from(calls.clone());
        let kept = Arc::new(inference::lock::Mutex::new(None::<Waker>));
        let keep = kept.clone();
        let mut task = pin!(with_inline_wake(poll_fn(move |context: &mut Context<'_>| {
            *keep.lock() = Some(context.waker().clone());
            Poll::<()>::Pending
        })));
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let waker = kept.lock().take().unwrap();
        waker.wake();
        assert_eq!(calls.0.load(SeqCst), 1);
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use loom::{
        future::block_on,
        model::Builder,
        sync::{Mutex, atomic::AtomicBool},
        thread,
    };

    use super::*;

    #[test]
    fn loom_finds_no_lost_wake_up() {
        let mut builder = Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            let (ready, waker) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None::<Waker>)));
            let task = {
                let (ready, waker) = (ready.clone(), waker.clone());
                poll_fn(move |context| {
                    *waker.lock().unwrap() = Some(context.waker().clone());
                    if ready.load(Acquire) { Poll::Ready(()) } else { Poll::Pending }
                })
            };
            let rings = thread::spawn(move || {
                ready.store(true, Release);
                let waker = waker.lock().unwrap().clone();
                if let Some(waker) = waker {
                    waker.wake();
                }
            });
            block_on(with_inline_wake(task));
            rings.join().unwrap();
        });
    }
}
