//! The threads that a server has started, so that its end can wait for theirs.
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use inference::lock::{Condvar, Mutex};

/// Threads that can be waited for. Clones share the threads. Threads that have ended are joined when others come, so the
/// group has no more handles than threads that run at a time.
#[derive(Debug, Clone, Default)]
pub struct ThreadGroup {
    state: Arc<GroupState>,
}

#[derive(Debug, Default)]
struct GroupState {
    threads: Mutex<Vec<GroupThread>>,
    /// Signalled when a thread that was started for the group has ended.
    ended: Condvar,
}

/// A thread that tells its group of its end.
#[derive(Debug)]
pub struct GroupThread {
    handle: JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

/// Tells the end of a thread when dropped.
struct EndSignal {
    group: Arc<GroupState>,
    has_ended: Arc<AtomicBool>,
}

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.has_ended.store(true, SeqCst);
        // A thread that waits has either seen the mark or gets the signal.
        drop(self.group.threads.lock());
        self.group.ended.notify_all();
    }
}

impl GroupThread {
    /// Whether the thread runs no more code but the end of every thread.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// Waits for the end of the thread. After that, no code of this library runs in it. Blocks.
    pub fn join(self) {
        // A thread that has panicked has already logged the panic.
        let _ = self.handle.join();
    }
}

impl ThreadGroup {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system refuses to start one.
    pub fn spawn(&self, builder: thread::Builder, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.start(builder, run).map(|thread| self.adopt(thread))
    }

    /// Starts a thread for which the group does not wait until it [adopts](Self::adopt) it.
    ///
    /// # Errors
    /// The system refuses to start one.
    pub fn start(
        &self,
        builder: thread::Builder,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<GroupThread> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let signal = EndSignal { group: self.state.clone(), has_ended: has_ended.clone() };
        let run = move || {
            // Dropped last, also in a panic.
            let _signal = signal;
            run();
        };
        Ok(GroupThread { handle: builder.spawn(run)?, has_ended })
    }

    /// Adds a thread that this group has started.
    pub fn adopt(&self, thread: GroupThread) {
        self.take_ended().into_iter().for_each(GroupThread::join);
        self.state.threads.lock().push(thread);
    }

    /// Waits until all threads have ended, also those that these threads have started, or until `deadline`. Does not
    /// wait for the calling thread. Returns whether all have ended. Blocks.
    pub fn join(&self, deadline: Instant) -> bool {
        let own = thread::current().id();
        let others_run =
            |threads: &[GroupThread]| threads.iter().any(|other| other.handle.thread().id() != own);
        loop {
            self.take_ended().into_iter().for_each(GroupThread::join);
            let mut threads = self.state.threads.lock();
            let waits = |threads: &mut Vec<GroupThread>| {
                others_run(threads) && !threads.iter().any(GroupThread::has_ended)
            };
            let waited = self.state.ended.wait_while_until(&mut threads, waits, deadline);
            if !others_run(&threads) {
                return true;
            }
            if waited.timed_out() {
                return false;
            }
        }
    }

    fn take_ended(&self) -> Vec<GroupThread> {
        self.state.threads.lock().extract_if(.., |thread| thread.has_ended()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn all_threads_are_waited_for_those_that_come_later_too() {
        let threads = ThreadGroup::default();
        let (gate, opened) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let inner = threads.clone();
        let run = move || {
            let _ = opened.recv();
            let last = move || ended.send(()).unwrap();
            inner.spawn(thread::Builder::new(), last).unwrap();
        };
        threads.spawn(thread::Builder::new(), run).unwrap();
        assert!(!threads.join(Instant::now()));
        drop(gate);
        assert!(threads.join(soon()));
        end.try_recv().unwrap();
        assert!(threads.state.threads.lock().is_empty());
    }

    #[test]
    fn a_thread_of_the_group_does_not_wait_for_itself() {
        let threads = ThreadGroup::default();
        let (answer, answered) = mpsc::channel();
        let inner = threads.clone();
        threads.spawn(thread::Builder::new(), move || answer.send(inner.join(soon())).unwrap()).unwrap();
        assert!(answered.recv().unwrap());
    }

    #[test]
    fn handles_of_threads_that_have_ended_do_not_accumulate() {
        let threads = ThreadGroup::default();
        for _ in 0..20 {
            threads.spawn(thread::Builder::new(), || ()).unwrap();
            assert!(threads.join(soon()));
            threads.spawn(thread::Builder::new(), || ()).unwrap();
        }
        assert!(threads.state.threads.lock().len() <= 2);
    }
}
