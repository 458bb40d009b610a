//! Threads that any work may use. The thread that became idle last works first, because its memory is still in the
//! processor's caches. Threads that stay without work end, so idle users of the pool cost no thread.
use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use inference::lock::{Condvar, Mutex};
use vocabulary::panic_message;

use crate::ThreadGroup;

/// What a thread of a pool does.
pub trait PoolWork: Send + 'static {
    /// Does it. May block.
    fn perform(self);
}

/// See the module documentation. Cheap to clone; the threads end when the last handle is dropped and their work is done.
pub struct ThreadPool<W: PoolWork> {
    shared: Arc<ThreadPoolShared<W>>,
    _alive: Arc<ThreadPoolAlive<W>>,
}

/// How the threads of a pool are.
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Their name.
    pub name: &'static str,
    /// The size of their stacks, in bytes.
    pub stack_bytes: usize,
    /// How long they stay without work. One always stays.
    pub idle_time: Duration,
}

struct ThreadPoolShared<W> {
    options: PoolOptions,
    group: ThreadGroup,
    state: Mutex<ThreadPoolState<W>>,
}

struct ThreadPoolState<W> {
    /// Threads without work. The last one became idle last.
    idle: Vec<Arc<Seat<W>>>,
    /// Work for threads that are being started, or that could not be started: then others do it.
    waiting: VecDeque<W>,
    is_over: bool,
}

/// Where an idle thread waits.
struct Seat<W> {
    call: Mutex<Option<Call<W>>>,
    called: Condvar,
}

enum Call<W> {
    Work(W),
    End,
}

/// Ends the threads when dropped.
struct ThreadPoolAlive<W: PoolWork>(Arc<ThreadPoolShared<W>>);

impl<W: PoolWork> Drop for ThreadPoolAlive<W> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<W: PoolWork> Clone for ThreadPool<W> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _alive: self._alive.clone() }
    }
}

impl<W: PoolWork> ThreadPool<W> {
    /// Starts the thread that always stays.
    ///
    /// # Errors
    /// The system refuses to start one.
    pub fn start(group: &ThreadGroup, options: PoolOptions) -> io::Result<Self> {
        let state = ThreadPoolState { idle: Vec::new(), waiting: VecDeque::new(), is_over: false };
        let shared = Arc::new(ThreadPoolShared { options, group: group.clone(), state: Mutex::new(state) });
        shared.add_thread(true)?;
        Ok(Self { _alive: Arc::new(ThreadPoolAlive(shared.clone())), shared })
    }

    /// Lets an idle thread do this, or a new one. If the system starts no more threads, the next thread that is free does
    /// it. Does not block.
    pub fn perform(&self, work: W) {
        let mut state = self.shared.state.lock();
        if let Some(seat) = state.idle.pop() {
            drop(state);
            return seat.call(Call::Work(work));
        }
        state.waiting.push_back(work);
        drop(state);
        if let Err(error) = self.shared.add_thread(false) {
            log::error!("no thread could be started ({error}): work waits until another thread is free");
        }
    }

    /// Ends the threads when they have done what waits.
    pub fn end(&self) {
        self.shared.end();
    }
}

impl<W: PoolWork> ThreadPoolShared<W> {
    fn add_thread(self: &Arc<Self>, stays: bool) -> io::Result<()> {
        let PoolOptions { name, stack_bytes, .. } = self.options;
        let shared = self.clone();
        let builder = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
        self.group.spawn(builder, move || shared.run(stays))
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        idle.iter().for_each(|seat| seat.call(Call::End));
    }

    /// What a thread does.
    fn run(&self, stays: bool) {
        let seat = Arc::new(Seat { call: Mutex::new(None), called: Condvar::new() });
        while let Some(work) = self.next(&seat, stays) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.perform())) {
                log::error!("a thread of '{}' panicked: {}", self.options.name, panic_message(&*panic));
            }
        }
    }

    /// Waits for work. `None`: the thread ends.
    fn next(&self, seat: &Arc<Seat<W>>, stays: bool) -> Option<W> {
        {
            let mut state = self.state.lock();
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            if state.is_over {
                return None;
            }
            state.idle.push(seat.clone());
        }
        let idle_time = (!stays).then_some(self.options.idle_time);
        let call = seat.wait(idle_time).or_else(|| {
            let mut state = self.state.lock();
            // Threads that have been idle for long come first.
            match state.idle.iter().position(|idle| Arc::ptr_eq(idle, seat)) {
                Some(place) => {
                    state.idle.remove(place);
                    Some(Call::End)
                }
                // A call is on its way.
                None => None,
            }
        });
        match call.or_else(|| seat.wait(None))? {
            Call::Work(work) => Some(work),
            Call::End => None,
        }
    }
}

impl<W> Seat<W> {
    fn call(&self, call: Call<W>) {
        *self.call.lock() = Some(call);
        self.called.notify_one();
    }

    /// The next call; `None` if none has come for so long.
    fn wait(&self, most: Option<Duration>) -> Option<Call<W>> {
        let mut call = self.call.lock();
        loop {
            if let Some(call) = call.take() {
                return Some(call);
            }
            match most {
                None => self.called.wait(&mut call),
                Some(most) => {
                    if self.called.wait_for(&mut call, most).timed_out() {
                        return call.take();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Instant};

    use super::*;

    impl<F: FnOnce() + Send + 'static> PoolWork for F {
        fn perform(self) {
            self();
        }
    }

    type BoxedWork = Box<dyn FnOnce() + Send>;

    fn pool(group: &ThreadGroup, idle_time: Duration) -> ThreadPool<BoxedWork> {
        let options = PoolOptions { name: "pool", stack_bytes: 1 << 20, idle_time };
        ThreadPool::start(group, options).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Returns the thread that does something. Before, a thread is idle.
    fn once(pool: &ThreadPool<BoxedWork>) -> thread::ThreadId {
        while pool.shared.state.lock().idle.is_empty() {
            thread::yield_now();
        }
        let (done, end) = mpsc::channel();
        pool.perform(Box::new(move || done.send(thread::current().id()).unwrap()));
        end.recv().unwrap()
    }

    #[test]
    fn work_that_follows_other_work_has_the_same_thread() {
        let group = ThreadGroup::default();
        let pool = pool(&group, Duration::from_secs(600));
        let first = once(&pool);
        assert!((0..100).all(|_| once(&pool) == first));
        drop(pool);
        assert!(group.join(soon()));
    }

    #[test]
    fn work_that_blocks_does_not_keep_other_work_from_being_done() {
        let group = ThreadGroup::default();
        let pool = pool(&group, Duration::from_secs(600));
        let (done, end) = mpsc::channel();
        let mut gates = Vec::new();
        for number in 0..20 {
            let (gate, opened) = mpsc::channel::<()>();
            let done = done.clone();
            pool.perform(Box::new(move || {
                let _ = opened.recv();
                done.send(number).unwrap();
            }));
            gates.push(gate);
        }
        while let Some(gate) = gates.pop() {
            drop(gate);
            assert_eq!(end.recv().unwrap(), gates.len());
        }
        pool.end();
        assert!(group.join(soon()));
    }

    #[test]
    fn all_work_is_done_once_while_threads_end_for_lack_of_it() {
        let group = ThreadGroup::default();
        let pool = pool(&group, Duration::ZERO);
        let (done, end) = mpsc::channel();
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let (pool, done) = (pool.clone(), done.clone());
                thread::spawn(move || {
                    for number in 0..500 {
                        let done = done.clone();
                        pool.perform(Box::new(move || done.send(sender * 500 + number).unwrap()));
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        drop((pool, done));
        assert!(group.join(soon()));
        let mut all: Vec<_> = end.iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2000));
    }

    #[test]
    fn a_panic_ends_no_thread_and_what_waits_at_the_end_is_done() {
        let group = ThreadGroup::default();
        let pool = pool(&group, Duration::from_secs(600));
        pool.perform(Box::new(|| panic!("a test panics")));
        let (done, end) = mpsc::channel();
        pool.perform(Box::new(move || done.send(()).unwrap()));
        pool.end();
        assert!(group.join(soon()));
        end.recv().unwrap();
    }
}
