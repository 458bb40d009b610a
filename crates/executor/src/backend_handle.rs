//! A backend's model while its version is served: the calls to the backend besides running requests.
//!
//! Calls may come at any time and on any thread. The thread that closes the version drops the model after the last call
//! has returned: a backend may need time to end, and must not block the thread of a client.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use inference::{
    backend::{BackendModel, MemoryUsage},
    lock::{Condvar, Mutex},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vocabulary::{Error, FailureReason};

/// See the module documentation.
pub(super) struct BackendModelHandle {
    pending_calls: Mutex<PendingCalls>,
    /// Signalled when the last call has returned.
    answered: Condvar,
    reports_readiness: bool,
    /// Only one thread at a time waits for a backend that answers readiness calls slowly: clients repeat health checks,
    /// even before the last one has been answered.
    turn: Arc<Semaphore>,
}

struct PendingCalls {
    /// `None` once the version is closed.
    backend: Option<Arc<dyn BackendModel>>,
    unanswered: usize,
}

impl BackendModelHandle {
    pub(super) fn new(backend: Arc<dyn BackendModel>) -> Self {
        Self {
            reports_readiness: backend.reports_readiness(),
            pending_calls: Mutex::new(PendingCalls { backend: Some(backend), unanswered: 0 }),
            answered: Condvar::new(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The backend's model, for further instances.
    ///
    /// # Errors
    /// UNAVAILABLE: the version is closed.
    pub(super) fn backend(&self) -> Result<Arc<dyn BackendModel>, Error> {
        let backend = self.pending_calls.lock().backend.clone();
        backend.ok_or_else(|| Error::unavailable("the model has been unloaded"))
    }

    /// Tells the backend that the configuration has changed.
    pub(super) fn configured(&self, config: &proto::ModelConfig) {
        // A panic or an end does not concern the new configuration.
        let _ = self.ask(|backend| backend.configured(config));
    }

    /// The memory that the model uses, as its backend reports it.
    pub(super) fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.ask(|backend| backend.memory_usage()).unwrap_or_default()
    }

    /// How often processes of the model were started again, if its backend knows.
    pub(super) fn process_restarts(&self) -> Option<u64> {
        self.ask(|backend| backend.process_restarts()).unwrap_or_default()
    }

    /// Returns when the backend has released all that its instances were given.
    pub(super) async fn released(&self) {
        // A backend that panics or has ended holds nothing.
        if let Ok(released) = self.ask(|backend| backend.released()) {
            released.await;
        }
    }

    /// Whether the backend takes part in the decision that the version is ready.
    pub(super) fn reports_readiness(&self) -> bool {
        self.reports_readiness
    }

    /// The right to ask whether the model is ready, when no other caller has it.
    pub(super) async fn turn(&self) -> OwnedSemaphorePermit {
        self.turn.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Asks the backend whether the model is ready. Blocks as long as the backend does.
    pub(super) fn ready(&self) -> Result<(), Error> {
        if self.reports_readiness { self.ask(|backend| backend.ready())? } else { Ok(()) }
    }

    pub(super) fn ask<A>(&self, question: impl FnOnce(&dyn BackendModel) -> A) -> Result<A, Error> {
        let backend = {
            let mut pending_calls = self.pending_calls.lock();
            let backend = pending_calls.backend.clone().ok_or_else(|| Error::unavailable("it has ended"))?;
            pending_calls.unanswered += 1;
            backend
        };
        let answer = catch_unwind(AssertUnwindSafe(|| question(&*backend)));
        // Dropped before `answered` is signalled: `end` drops the last reference.
        drop(backend);
        let mut pending_calls = self.pending_calls.lock();
        pending_calls.unanswered -= 1;
        if pending_calls.unanswered == 0 {
            self.answered.notify_all();
        }
        answer.map_err(|_| Error::internal("its backend panicked").because(FailureReason::Backend))
    }

    /// Accepts no more calls, and drops the model after the pending calls have returned. Blocks.
    pub(super) fn end(&self) {
        let mut pending_calls = self.pending_calls.lock();
        let backend = pending_calls.backend.take();
        self.answered.wait_while(&mut pending_calls, |pending_calls| pending_calls.unanswered > 0);
        drop(pending_calls);
        drop(backend);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use config::ModelConfig;
    use inference::backend::{BuiltInstance, InstanceSpec};
    use vocabulary::MemoryKind;

    use super::*;

    const SOME: MemoryUsage = MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size: 5 };

    /// Reports each readiness call to the test, and waits for the test's answer.
    struct Asked {
        pending_calls: mpsc::SyncSender<mpsc::Sender<Result<(), Error>>>,
        ended: mpsc::Sender<thread::ThreadId>,
    }

    impl BackendModel for Asked {
        fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
            Err(Error::internal("none here"))
        }

        fn memory_usage(&self) -> Vec<MemoryUsage> {
            vec![SOME]
        }

        fn reports_readiness(&self) -> bool {
            true
        }

        fn ready(&self) -> Result<(), Error> {
            let (answer, answered) = mpsc::channel();
            self.pending_calls.send(answer).unwrap();
            answered.recv().expect("an answer, or a panic")
        }
    }

    impl Drop for Asked {
        fn drop(&mut self) {
            let _ = self.ended.send(thread::current().id());
        }
    }

    type Asking = mpsc::Receiver<mpsc::Sender<Result<(), Error>>>;

    fn backend_handle() -> (Arc<BackendModelHandle>, Asking, mpsc::Receiver<thread::ThreadId>) {
        let (pending_calls, asking) = mpsc::sync_channel(0);
        let (ended, end) = mpsc::channel();
        (Arc::new(BackendModelHandle::new(Arc::new(Asked { pending_calls, ended }))), asking, end)
    }

    #[test]
    fn a_model_is_dropped_by_the_closing_thread_after_the_last_call() {
        let (backend_handle, asking, end) = backend_handle();
        let asker = thread::spawn({
            let backend_handle = backend_handle.clone();
            move || backend_handle.ready()
        });
        let answer = asking.recv().unwrap();
        let closer = thread::spawn({
            let backend_handle = backend_handle.clone();
            move || backend_handle.end()
        });
        while backend_handle.pending_calls.lock().backend.is_some() {
            thread::yield_now();
        }
        assert!(end.try_recv().is_err(), "it ended while it was asked");
        answer.send(Ok(())).unwrap();
        assert_eq!(asker.join().unwrap(), Ok(()));
        assert_eq!(end.recv().unwrap(), closer.thread().id());
        closer.join().unwrap();
    }

    #[test]
    fn a_closed_model_is_not_ready_and_uses_no_memory() {
        let (backend_handle, _asking, _end) = backend_handle();
        assert_eq!(backend_handle.memory_usage(), [SOME]);
        backend_handle.end();
        assert_eq!(backend_handle.memory_usage(), []);
        assert_eq!(backend_handle.ready().unwrap_err().message, "it has ended");
        backend_handle.end();
    }

    #[test]
    fn a_backend_that_panics_when_it_is_asked_is_not_ready_and_can_be_ended() {
        let (backend_handle, asking, end) = backend_handle();
        // The backend cannot report the call any more.
        drop(asking);
        assert_eq!(backend_handle.ready().unwrap_err().message, "its backend panicked");
        backend_handle.end();
        end.recv().unwrap();
    }
}
