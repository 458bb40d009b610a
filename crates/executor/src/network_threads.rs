//! Executions on the threads of the network.
//!
//! A brief execution runs on the thread that brings its request. Nobody can promise that it is brief: the next request
//! may make the same model compute for minutes. Two rules keep such a request from delaying others. At least one network
//! thread is never lent. And while a thread is lent and no execution begins, the timer thread wakes a network thread again
//! and again: the lent one may be the thread that watched the sockets, and the runtime itself replaces it only when it has
//! work for another.
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use host::{TimerTarget, TimerThread, now};
use inference::Timestamp;
use tokio::runtime::Handle;

/// For how long no thread may watch the sockets after a thread has been lent. Short against what a client notices, long
/// against the cost of waking a thread.
const UNWATCHED: Duration = Duration::from_millis(2);

/// The bits of the number of threads that are lent.
const COUNT_BITS: u32 = 16;
/// One more thread is lent.
const ONE_LOAN: u64 = (1 << COUNT_BITS) + 1;

fn lent_in(loans: u64) -> u64 {
    loans & ((1 << COUNT_BITS) - 1)
}

/// The threads of the runtime, which all clients share.
pub(crate) struct NetworkThreads {
    runtime: Option<Handle>,
    /// Threads that may be lent at the same time: all but one.
    lendable: u64,
    /// How many threads are lent, and above [`COUNT_BITS`] how often one has been lent.
    loans: AtomicU64,
    /// Whether the timer thread will look at `loans`.
    watched: AtomicBool,
    /// The value of `loans` when the timer thread was told to look at them.
    seen: AtomicU64,
    clock: TimerThread,
    itself: Weak<Self>,
}

/// The current thread, while it executes a batch.
pub(crate) struct LentThread<'a>(Option<&'a NetworkThreads>);

impl NetworkThreads {
    /// The threads of the current runtime, if this thread is in one.
    pub(crate) fn new(clock: TimerThread) -> Arc<Self> {
        let runtime = Handle::try_current().ok();
        let workers = runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_workers());
        Arc::new_cyclic(|itself| Self {
            runtime,
            lendable: workers.saturating_sub(1) as u64,
            loans: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            clock,
            itself: itself.clone(),
        })
    }

    /// Lends the current thread to an execution that begins at `at`. Returns `None` if too many are lent. A thread that
    /// runs no task of a runtime belongs to the caller, and is always lent.
    pub(crate) fn lend(&self, at: Timestamp) -> Option<LentThread<'_>> {
        if tokio::task::try_id().is_none() {
            return Some(LentThread(None));
        }
        let lent = LentThread(Some(self));
        let loans = self.loans.fetch_add(ONE_LOAN, Ordering::SeqCst);
        if lent_in(loans) >= self.lendable {
            return None;
        }
        // The timer thread clears the mark before it counts the lent threads: either it counts this one, or the mark is
        // seen cleared here.
        if !self.watched.load(Ordering::SeqCst) && !self.watched.swap(true, Ordering::SeqCst) {
            self.watch(loans + ONE_LOAN, at);
        }
        Some(lent)
    }

    fn watch(&self, loans: u64, at: Timestamp) {
        self.seen.store(loans, Ordering::SeqCst);
        self.clock.wake_at(at + UNWATCHED, self.itself.clone());
    }
}

impl LentThread<'_> {
    /// Lets other network threads run the task that this thread has woken last, such as one that waits for the response
    /// of an execution on this thread. The runtime keeps that task for this thread until another one is woken.
    pub(crate) fn share_tasks(&self) {
        if self.0.is_some() {
            drop(tokio::spawn(std::future::ready(())));
        }
    }
}

impl Drop for LentThread<'_> {
    fn drop(&mut self) {
        if let Some(threads) = self.0 {
            threads.loans.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl TimerTarget for NetworkThreads {
    fn wake(self: Arc<Self>) {
        self.watched.store(false, Ordering::SeqCst);
        let loans = self.loans.load(Ordering::SeqCst);
        if lent_in(loans) == 0 {
            return;
        }
        let began_none = loans >> COUNT_BITS == self.seen.load(Ordering::SeqCst) >> COUNT_BITS;
        if let Some(runtime) = self.runtime.as_ref().filter(|_| began_none) {
            // A task that does not come from a network thread wakes an idle one, which then watches the sockets.
            drop(runtime.spawn(std::future::ready(())));
        }
        if !self.watched.swap(true, Ordering::SeqCst) {
            self.watch(loans, now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream},
        sync::mpsc,
    };

    use host::ThreadGroup;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        runtime::{Builder, Runtime},
    };

    use super::*;

    fn runtime(workers: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
    }

    fn network_threads(runtime: &Runtime) -> Arc<NetworkThreads> {
        let _inside = runtime.enter();
        NetworkThreads::new(TimerThread::start(&ThreadGroup::default()).unwrap())
    }

    /// Lends threads until one is refused, gives them back, and does so again. Returns how many there were each time.
    async fn lendable(threads: Arc<NetworkThreads>) -> [usize; 2] {
        [(); 2].map(|()| {
            let lent: Vec<_> = std::iter::from_fn(|| threads.lend(now())).collect();
            lent.len()
        })
    }

    #[test]
    fn one_network_thread_is_never_lent() {
        for workers in [1, 2, 5] {
            let runtime = runtime(workers);
            let task = runtime.spawn(lendable(network_threads(&runtime)));
            assert_eq!(runtime.block_on(task).unwrap(), [workers - 1; 2]);
        }
    }

    #[test]
    fn a_thread_of_a_caller_is_always_lent() {
        let runtime = runtime(1);
        let threads = network_threads(&runtime);
        assert!(threads.lend(now()).is_some() && runtime.block_on(async { threads.lend(now()).is_some() }));
        assert_eq!(threads.loans.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_task_that_a_lent_thread_has_woken_runs_on_another_one() {
        let runtime = runtime(2);
        let threads = network_threads(&runtime);
        let (wake, woken) = tokio::sync::oneshot::channel::<()>();
        let (sender, go_on) = mpsc::channel();
        runtime.spawn(async move {
            woken.await.unwrap();
            sender.send(()).unwrap();
        });
        let lent = runtime.spawn(async move {
            let lent = threads.lend(now()).expect("only one thread is lent");
            wake.send(()).unwrap();
            lent.share_tasks();
            go_on.recv().unwrap();
        });
        runtime.block_on(lent).unwrap();
    }

    /// A server that answers each byte with the same byte. At a zero it executes until the test lets it go on.
    async fn serve(listener: TcpListener, threads: Arc<NetworkThreads>, go_on: mpsc::Receiver<()>) {
        let go_on = Arc::new(inference::lock::Mutex::new(go_on));
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (threads, go_on) = (threads.clone(), go_on.clone());
            tokio::spawn(async move {
                while let Ok(byte) = socket.read_u8().await {
                    if byte == 0 {
                        let _lent = threads.lend(now()).expect("only one thread is lent");
                        go_on.lock().recv().unwrap();
                    }
                    socket.write_u8(byte).await.unwrap();
                }
            });
        }
    }

    fn ask(socket: &mut TcpStream, byte: u8) {
        socket.write_all(&[byte]).unwrap();
        let mut answer = [9];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [byte]);
    }

    #[test]
    fn an_execution_that_never_ends_delays_no_other_client() {
        let runtime = runtime(2);
        let threads = network_threads(&runtime);
        let (sender, go_on) = mpsc::channel();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, threads, go_on));
        let connect = || TcpStream::connect(address).unwrap();
        let (mut long, mut other) = (connect(), connect());
        ask(&mut long, 1);
        ask(&mut other, 1);
        // The thread that finds this byte is the one that watches the sockets.
        long.write_all(&[0]).unwrap();
        for _ in 0..20 {
            ask(&mut other, 2);
            ask(&mut connect(), 3);
        }
        sender.send(()).unwrap();
        let mut answer = [9];
        long.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0]);
    }
}
