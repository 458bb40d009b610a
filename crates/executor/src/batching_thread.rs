//! The thread that steps the driver of a model whose batches a plug-in forms.
//!
//! Each step of such a driver may call the plug-in, under the lock of the driver, for as long as the plug-in likes. So
//! a thread that also serves others does not step it and does not wait for its lock: threads of the network, the timer,
//! the repository's task, and threads of other models. They leave an event here. Only the model's own threads and
//! those that may block take the lock.
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use host::ThreadGroup;
use inference::lock::Mutex;
use vocabulary::panic_message;

use super::driver::Workload;

/// Steps the driver, among other things.
type DeferredStep = Box<dyn FnOnce() + Send>;

/// See the module documentation. An event is sent after all that the same thread has sent before.
pub(super) struct BatchingThread {
    /// It needs no bound: an event belongs to an accepted request, whose bytes are counted, or to an instance. `None` when
    /// the executor is closed.
    events: Mutex<Option<mpsc::Sender<DeferredStep>>>,
    /// How much there was to do when it was last looked at.
    last_workload: Mutex<Workload>,
}

impl BatchingThread {
    /// # Errors
    /// The system refuses to start a thread.
    pub(super) fn start(threads: &ThreadGroup, model: &str) -> io::Result<Self> {
        let (sender, events) = mpsc::channel::<DeferredStep>();
        let name = model.to_owned();
        threads.spawn(thread::Builder::new().name("batching".to_owned()), move || {
            for event in events {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(event)) {
                    log::error!("a step of model '{name}' panicked: {}", panic_message(&*panic));
                }
            }
        })?;
        Ok(Self { events: Mutex::new(Some(sender)), last_workload: Mutex::default() })
    }

    /// Leaves an event. An event that comes after the end is dropped: it concerns no request.
    pub(super) fn put(&self, event: DeferredStep) {
        let sender = self.events.lock().clone();
        // The thread takes events as long as there is a sender.
        let _ = sender.map(|sender| sender.send(event));
    }

    /// Waits until all events have been handled that came before. Blocks as long as the plug-in does.
    pub(super) fn flush(&self) {
        let (handled, end) = mpsc::channel::<()>();
        self.put(Box::new(move || drop(handled)));
        // The sender is dropped, and nothing is ever sent.
        let _ = end.recv();
    }

    /// How much there is to do, if it can be looked at; otherwise that of the last look.
    pub(super) fn last_workload(&self, workload: Option<Workload>) -> Workload {
        let mut last_workload = self.last_workload.lock();
        *last_workload = workload.unwrap_or(*last_workload);
        *last_workload
    }

    /// The thread ends after the events that have come.
    pub(super) fn end(&self) {
        let sender = self.events.lock().take();
        drop(sender);
    }
}
