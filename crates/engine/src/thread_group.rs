//! The threads that a server has started, so that its end can wait for theirs.
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// How often [`ThreadGroup::join`] looks whether threads have ended.
const TICK: Duration = Duration::from_millis(1);

/// Threads that can be waited for. Clones share the threads. Threads that have ended are joined when others come, so the
/// group has no more handles than threads that run at a time.
#[derive(Debug, Clone, Default)]
pub struct ThreadGroup {
    handles: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl ThreadGroup {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system refuses to start one.
    pub fn spawn(&self, builder: thread::Builder, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        builder.spawn(run).map(|handle| self.adopt(handle))
    }

    /// Adds a thread.
    pub fn adopt(&self, handle: JoinHandle<()>) {
        join_all(self.take_ended());
        self.handles.lock().push(handle);
    }

    /// Waits until all threads have ended, also those that these threads have started, or until `deadline`. Does not
    /// wait for the calling thread. Returns whether all have ended. Blocks.
    pub fn join(&self, deadline: Instant) -> bool {
        let own = thread::current().id();
        loop {
            join_all(self.take_ended());
            if self.handles.lock().iter().all(|handle| handle.thread().id() == own) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(TICK);
        }
    }

    fn take_ended(&self) -> Vec<JoinHandle<()>> {
        self.handles.lock().extract_if(.., |handle| handle.is_finished()).collect()
    }
}

/// Joins threads that run no more code but the end of every thread. After that, no code of this library runs in them.
fn join_all(ended: Vec<JoinHandle<()>>) {
    for handle in ended {
        // A thread that has panicked has already logged the panic.
        let _ = handle.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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
        assert!(threads.handles.lock().is_empty());
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
        assert!(threads.handles.lock().len() <= 2);
    }
}
