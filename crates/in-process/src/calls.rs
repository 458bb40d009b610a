//! The threads on which the server calls the functions of the program.
//!
//! A callback of the program may block for any time. For example, it may wait until another request has been answered,
//! or for a lock that the program holds while it sends requests. So only threads of this pool make callbacks. The
//! threads of the engine and the thread that sends the request never do.
use std::{
    cell::Cell,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use host::ThreadGroup;
use inference::lock::{Condvar, Mutex, MutexGuard};
use vocabulary::panic_message;

/// The maximum number of threads per server. While that many callbacks have not returned, further callbacks wait.
/// Nothing else in the server waits for callbacks.
const MOST_THREADS: usize = 64;

/// The number of threads that stay when there is no work.
const MOST_IDLE: usize = 4;

/// The same stack size as the threads of instances have.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    /// The pool of this thread. Only compared.
    static POOL: Cell<*const PoolShared> = const { Cell::new(ptr::null()) };
}

type CallbackJob = Box<dyn FnOnce() + Send>;

/// Calls functions of the program. The threads end when the pool is dropped and the queue is empty.
///
/// The queue needs no bound: it contains each request of the program at most three times, for its responses, its
/// release and the release of its trace.
pub(crate) struct CallbackPool {
    shared: Arc<PoolShared>,
}

/// Queues work for a pool. The pool may have ended.
#[derive(Clone)]
pub(crate) struct CallbackQueue {
    shared: Arc<PoolShared>,
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    group: ThreadGroup,
    /// Signalled when a thread must take the next job, and when the pool has been closed.
    work: Condvar,
    /// Signalled when a call has returned and the queue is empty.
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<CallbackJob>,
    threads: usize,
    /// The number of these threads that wait for work.
    idle: usize,
    /// The number of these threads that are in a callback.
    running: usize,
    /// Set from the time a thread is started or signalled until it looks for a job. Only one thread is called at a
    /// time: a thread that takes a job calls the next one. So a job never waits for a callback that blocks, and brief
    /// callbacks need few threads.
    coming: bool,
    /// Whether it has been logged that all threads are busy.
    complained: bool,
    closed: bool,
}

impl CallbackPool {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default() }
    }

    pub(crate) fn queue(&self) -> CallbackQueue {
        CallbackQueue { shared: self.shared.clone() }
    }

    /// Waits until all queued calls have returned, or until the timeout. A thread of the pool does not wait for the
    /// callback that it runs itself. Returns whether all calls have returned.
    pub(crate) fn wait_until_quiet(&self, most: Duration) -> bool {
        let own = usize::from(ptr::eq(POOL.get(), &raw const *self.shared));
        let mut state = self.shared.state.lock();
        let unfinished = |state: &mut PoolState| state.running > own || !state.jobs.is_empty();
        match Instant::now().checked_add(most) {
            Some(until) => !self.shared.returned.wait_while_until(&mut state, unfinished, until).timed_out(),
            None => {
                self.shared.returned.wait_while(&mut state, unfinished);
                true
            }
        }
    }
}

impl CallbackPool {
    /// Ends the threads when the queue is empty, and waits until they have ended, at most until `deadline`. A thread of
    /// the pool does not wait for itself. Returns whether all have ended.
    pub(crate) fn end(&self, deadline: Instant) -> bool {
        self.close();
        self.shared.group.join(deadline)
    }

    fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Drop for CallbackPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl CallbackQueue {
    /// Makes calls to the program on a thread of the pool. Does not block.
    pub(crate) fn push(&self, calls: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(Box::new(calls));
        self.shared.call_thread(&mut state);
    }
}

impl PoolShared {
    /// Starts or wakes a thread for the next job, if there is a job.
    fn call_thread(self: &Arc<Self>, state: &mut MutexGuard<'_, PoolState>) {
        if state.jobs.is_empty() || state.coming {
            return;
        }
        if state.idle > 0 {
            state.coming = true;
            self.work.notify_one();
        } else if state.threads < MOST_THREADS {
            self.start_thread(state);
        } else if !std::mem::replace(&mut state.complained, true) {
            MutexGuard::unlocked(state, || {
                log::warn!(
                    "{MOST_THREADS} callbacks of the program have not returned; the next ones wait until one of them has"
                );
            });
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut MutexGuard<'_, PoolState>) {
        let shared = self.clone();
        let builder = thread::Builder::new().name("callback".into()).stack_size(STACK_BYTES);
        // Counted before it runs, so that no other thread starts one more for the same job.
        state.coming = true;
        state.threads += 1;
        match MutexGuard::unlocked(state, || self.group.spawn(builder, move || shared.run())) {
            Ok(()) => {}
            Err(error) => {
                state.coming = false;
                state.threads -= 1;
                MutexGuard::unlocked(state, || {
                    log::error!("failed to start a thread for callbacks: {error}");
                });
                // If no thread can be started and none exists, this thread makes the calls: otherwise they would never
                // be made.
                while state.threads == 0
                    && let Some(job) = state.jobs.pop_front()
                {
                    MutexGuard::unlocked(state, || make(job));
                }
            }
        }
    }

    /// The loop of a thread.
    fn run(self: Arc<Self>) {
        POOL.set(&raw const *self);
        let mut state = self.state.lock();
        state.coming = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.running += 1;
                self.call_thread(&mut state);
                MutexGuard::unlocked(&mut state, || make(job));
                state.running -= 1;
                if state.jobs.is_empty() {
                    self.returned.notify_all();
                }
                continue;
            }
            state.complained = false;
            if state.closed || state.idle >= MOST_IDLE {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            self.work.wait_while(&mut state, |state| !state.coming && !state.closed);
            state.idle -= 1;
            state.coming = false;
        }
    }
}

fn make(job: CallbackJob) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        log::error!("a callback of the program panicked: {}", panic_message(&*panic));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocking_callback_delays_no_other_until_all_threads_block() {
        let pool = CallbackPool::new();
        let queue = pool.queue();
        let (started, begun) = mpsc::channel();
        let gates: Vec<_> = (0..MOST_THREADS)
            .map(|_| {
                let (gate, opened) = mpsc::channel::<()>();
                let started = started.clone();
                queue.push(move || {
                    started.send(()).unwrap();
                    let _ = opened.recv();
                });
                gate
            })
            .collect();
        gates.iter().for_each(|_| begun.recv().unwrap());
        // All threads are busy now: one more call waits, and no thread is added.
        let (answer, answered) = mpsc::channel();
        queue.push(move || answer.send(()).unwrap());
        {
            let state = pool.shared.state.lock();
            assert_eq!((state.threads, state.jobs.len(), state.complained), (MOST_THREADS, 1, true));
        }
        assert!(answered.try_recv().is_err());
        drop(gates);
        answered.recv().unwrap();
    }

    #[test]
    fn threads_end_when_there_is_little_to_do_and_all_of_them_with_the_pool() {
        let pool = CallbackPool::new();
        let queue = pool.queue();
        let (gate, opened) = mpsc::channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        for _ in 0..2 * MOST_IDLE {
            let opened = opened.clone();
            queue.push(move || {
                let _ = opened.lock().recv();
            });
        }
        drop(gate);
        let threads = |most: usize| {
            while pool_threads(&queue) > most {
                thread::yield_now();
            }
        };
        threads(MOST_IDLE);
        drop(pool);
        threads(0);
        // A request may be released after its server was deleted.
        let (answer, answered) = mpsc::channel();
        queue.push(move || answer.send(()).unwrap());
        answered.recv().unwrap();
        threads(0);
    }

    #[test]
    fn waiting_for_quiet_waits_for_all_callbacks_except_its_own() {
        let pool = Arc::new(CallbackPool::new());
        let queue = pool.queue();
        assert!(pool.wait_until_quiet(Duration::ZERO));
        let (gate, opened) = mpsc::channel::<()>();
        queue.push(move || {
            let _ = opened.recv();
        });
        assert!(!pool.wait_until_quiet(Duration::ZERO));
        drop(gate);
        assert!(pool.wait_until_quiet(Duration::MAX));
        let (answer, answered) = mpsc::channel();
        let of_callback = pool.clone();
        queue.push(move || answer.send(of_callback.wait_until_quiet(Duration::MAX)).unwrap());
        assert!(answered.recv().unwrap());
    }

    fn pool_threads(queue: &CallbackQueue) -> usize {
        queue.shared.state.lock().threads
    }

    #[test]
    fn a_thread_runs_further_callbacks_after_a_panic() {
        let pool = CallbackPool::new();
        let queue = pool.queue();
        queue.push(|| panic!("on purpose"));
        let (answer, answered) = mpsc::channel();
        queue.push(move || answer.send(()).unwrap());
        answered.recv().unwrap();
    }
}
