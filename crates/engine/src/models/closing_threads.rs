//! The threads that close retired copies: at most so many, however many copies end at a time.
//!
//! They are no threads of the runtime, which waits for its blocking threads at its end: a backend that hangs must not delay
//! it. A copy that is closed keeps a thread as long as its backend needs. If all threads are busy, the next copies wait for
//! one, and the log names those that hold the threads. If the system refuses a thread, another one takes the copy, or
//! it is tried again: a copy never counts as ended before it has been closed.
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use host::ThreadGroup;
use inference::lock::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

/// How many copies are closed at a time. Models in Python may take seconds, and a stop closes all models.
const MOST_THREADS: usize = 64;

/// How long a copy waits before a thread is tried again that the system has refused.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a copy waits for a thread before the log names those that hold the threads.
const TOLD_AFTER: Duration = Duration::from_secs(10);

type Closing = Box<dyn FnOnce() + Send>;
type StartThread = Box<dyn Fn(Closing) -> io::Result<()> + Send + Sync>;

/// See the module documentation. Clones share the threads.
#[derive(Clone)]
pub(super) struct ClosingThreads(Arc<ClosingState>);

struct ClosingState {
    queue: Mutex<ClosingQueue>,
    most: usize,
    start: StartThread,
}

#[derive(Default)]
struct ClosingQueue {
    next: u64,
    waiting: VecDeque<RetiredCopy>,
    /// Threads that run, or that are being started.
    threads: usize,
    /// The copies that hold threads, and since when.
    closing: BTreeMap<u64, (String, Instant)>,
}

/// A copy that waits for a thread.
struct RetiredCopy {
    number: u64,
    /// For the log.
    name: String,
    close: Closing,
    /// Dropped when the copy has been closed.
    _closed: oneshot::Sender<()>,
}

impl ClosingThreads {
    pub(super) fn new(group: ThreadGroup) -> Self {
        Self::at_most(MOST_THREADS, group)
    }

    pub(super) fn at_most(most: usize, group: ThreadGroup) -> Self {
        let start = move |run| group.spawn(std::thread::Builder::new().name("retire".to_owned()), run);
        Self::with(most, Box::new(start))
    }

    fn with(most: usize, start: StartThread) -> Self {
        Self(Arc::new(ClosingState { queue: Mutex::default(), most, start }))
    }

    /// Calls `close`, which may block, on one of the threads. Returns when it has returned or panicked. If the caller gives
    /// up, it is called nevertheless.
    pub(super) async fn close(&self, name: String, close: impl FnOnce() + Send + 'static) {
        let (closed, end) = oneshot::channel();
        let number = {
            let mut queue = self.0.queue.lock();
            let number = queue.next;
            queue.next += 1;
            queue.waiting.push_back(RetiredCopy { number, name, close: Box::new(close), _closed: closed });
            number
        };
        let (begun, mut has_told, mut end) = (Instant::now(), false, pin!(end));
        loop {
            let pause = if self.start_thread() { TOLD_AFTER } else { RETRY_PAUSE };
            tokio::select! {
                // The sender is dropped at the end.
                _ = &mut end => return,
                () = sleep(pause) => {}
            }
            if !has_told && begun.elapsed() >= TOLD_AFTER {
                has_told = self.tell(number);
            }
        }
    }

    /// Starts a thread if a copy waits and there may be one more. Returns false if no thread is there to take a copy.
    fn start_thread(&self) -> bool {
        {
            let mut queue = self.0.queue.lock();
            if queue.waiting.is_empty() || queue.threads == self.0.most {
                return true;
            }
            queue.threads += 1;
        }
        let state = self.0.clone();
        let Err(error) = (self.0.start)(Box::new(move || state.run())) else { return true };
        let mut queue = self.0.queue.lock();
        queue.threads -= 1;
        let others = queue.threads;
        drop(queue);
        match others {
            0 => log::error!("failed to start a thread that ends a model; it is tried again: {error}"),
            _ => log::warn!("failed to start a thread that ends a model; another one will end it: {error}"),
        }
        others > 0
    }

    /// Logs what holds the threads, if that copy still waits for one. Returns whether it does.
    fn tell(&self, number: u64) -> bool {
        let (name, holders) = {
            let queue = self.0.queue.lock();
            let Some(copy) = queue.waiting.iter().find(|copy| copy.number == number) else { return false };
            let holders = queue.closing.values().map(|(name, since)| (name.clone(), since.elapsed()));
            (copy.name.clone(), holders.collect::<Vec<_>>())
        };
        let shown: Vec<_> =
            holders.iter().take(8).map(|(name, time)| format!("{name} for {} s", time.as_secs())).collect();
        log::warn!(
            "{name} waits for its end: {} models are being ended, which hold all threads: {}{}",
            holders.len(),
            shown.join(", "),
            if holders.len() > shown.len() { ", ..." } else { "" }
        );
        true
    }
}

impl ClosingState {
    /// What a thread does: it closes copies until none waits.
    fn run(&self) {
        loop {
            let RetiredCopy { number, name, close, _closed } = {
                let mut queue = self.queue.lock();
                let Some(copy) = queue.waiting.pop_front() else {
                    queue.threads -= 1;
                    return;
                };
                queue.closing.insert(copy.number, (copy.name.clone(), Instant::now()));
                copy
            };
            if catch_unwind(AssertUnwindSafe(close)).is_err() {
                // The panic has been logged.
                log::error!("{name} has not ended as it should");
            }
            self.queue.lock().closing.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc,
        },
        task::{Context, Waker},
        thread,
    };

    use futures_util::future::join_all;

    use super::*;

    /// Threads that are counted while they run.
    #[derive(Clone, Default)]
    struct CountedThreads {
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl CountedThreads {
        fn closing(&self, most: usize) -> ClosingThreads {
            let counted = self.clone();
            let start = move |run: Closing| {
                let counted = counted.clone();
                let now = counted.running.fetch_add(1, SeqCst) + 1;
                counted.most.fetch_max(now, SeqCst);
                thread::Builder::new().spawn(move || {
                    run();
                    counted.running.fetch_sub(1, SeqCst);
                })?;
                Ok(())
            };
            ClosingThreads::with(most, Box::new(start))
        }
    }

    #[tokio::test]
    async fn a_thousand_copies_end_on_a_bounded_number_of_threads() {
        let (counted, closed) = (CountedThreads::default(), Arc::new(AtomicUsize::new(0)));
        let threads = counted.closing(MOST_THREADS);
        let (gate, opened) = mpsc::channel::<()>();
        let opened = Arc::new(Mutex::new(Some(opened)));
        let all = (0..1_000).map(|number| {
            let (closed, opened) = (closed.clone(), opened.clone());
            threads.close(format!("model {number}"), move || {
                // The first one hangs until all others have been closed.
                let hangs = if number == 0 { opened.lock().take() } else { None };
                hangs.map(|opened| opened.recv());
                closed.fetch_add(1, SeqCst);
            })
        });
        let mut all: Vec<_> = all.map(Box::pin).collect();
        let mut first = all.remove(0);
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        join_all(all).await;
        assert_eq!(closed.load(SeqCst), 999, "one that hangs holds no other up");
        drop(gate);
        first.await;
        assert_eq!(closed.load(SeqCst), 1_000);
        assert!(counted.most.load(SeqCst) <= MOST_THREADS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_waits_until_the_system_gives_a_thread() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        let start = move |run: Closing| {
            if counted.fetch_add(1, SeqCst) < 3 {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            run();
            Ok(())
        };
        let threads = ClosingThreads::with(MOST_THREADS, Box::new(start));
        let (answer, answered) = mpsc::channel();
        threads.close("a model".to_owned(), move || answer.send(()).unwrap()).await;
        answered.try_recv().expect("it has been closed");
        assert_eq!(attempts.load(SeqCst), 4);
    }

    #[tokio::test]
    async fn a_copy_that_panics_has_ended_and_its_thread_takes_the_next_one() {
        let counted = CountedThreads::default();
        let threads = counted.closing(1);
        let (answer, answered) = mpsc::channel();
        let faulty = threads.close("a faulty model".to_owned(), || panic!("it cannot end"));
        let next = threads.close("the next model".to_owned(), move || answer.send(()).unwrap());
        tokio::join!(faulty, next);
        answered.try_recv().unwrap();
        assert_eq!(counted.most.load(SeqCst), 1);
    }
}
