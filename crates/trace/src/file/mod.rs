//! Mode `triton`: traces as JSON in files.
//!
//! A thread of its own formats and writes. Requests hand their traces over through a queue, whose memory the budget for
//! traces bounds. The thread holds texts until a file is complete, as Triton does. If it holds too many bytes, it writes
//! a part of a file.
mod format;
mod numbers;
mod thread;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use inference::{
    Error,
    lock::{Condvar, Mutex},
};

use crate::{metrics::TraceCounters, record::FinishedTrace};
use thread::FileThread;

/// Hands traces to the thread that writes files.
pub(crate) struct FileExporter {
    shared: Arc<FileQueue>,
}

/// What the thread is told, in order.
pub(super) enum FileMessage {
    Trace(FinishedTrace),
    /// No further trace of these settings comes.
    SettingEnded(u64),
}

/// The queue between requests and the thread. It needs no bound of its own: the budget for traces bounds the traces, and
/// clients change settings one after the other.
#[derive(Default)]
pub(super) struct FileQueue {
    state: Mutex<FileQueueState>,
    /// Signalled when there is a message, when the thread must end, and when it has ended.
    changed: Condvar,
}

#[derive(Default)]
struct FileQueueState {
    messages: VecDeque<FileMessage>,
    must_end: bool,
    has_ended: bool,
}

impl FileExporter {
    /// Starts the thread. It holds at most about `held_bytes` of text.
    ///
    /// # Errors
    /// INTERNAL: the thread cannot be started.
    pub(crate) fn start(
        path: PathBuf,
        held_bytes: usize,
        counters: Arc<TraceCounters>,
    ) -> Result<Self, Error> {
        let shared = Arc::<FileQueue>::default();
        let queue = shared.clone();
        let builder = std::thread::Builder::new().name("trace files".into());
        builder
            .spawn(move || {
                let _ended = EndOfFileThread(&queue);
                FileThread::new(path, held_bytes, counters).run(&queue);
            })
            .map_err(|error| {
                Error::internal(format!("failed to start the thread for trace files: {error}"))
            })?;
        Ok(Self { shared })
    }

    pub(crate) fn push(&self, trace: FinishedTrace) {
        self.shared.push(FileMessage::Trace(trace));
    }

    pub(crate) fn setting_ended(&self, setting: u64) {
        self.shared.push(FileMessage::SettingEnded(setting));
    }

    pub(crate) fn finish(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.shared.state.lock();
        state.must_end = true;
        self.shared.changed.notify_all();
        while !state.has_ended {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.has_ended
    }
}

impl Drop for FileExporter {
    /// The thread writes what it has, and nobody waits for it.
    fn drop(&mut self) {
        self.shared.state.lock().must_end = true;
        self.shared.changed.notify_all();
    }
}

impl FileQueue {
    fn push(&self, message: FileMessage) {
        let mut state = self.state.lock();
        // After the end, nobody takes messages.
        if !state.has_ended {
            state.messages.push_back(message);
            self.changed.notify_all();
        }
    }

    /// Waits for messages, and takes all of them. `None` when the thread must end.
    fn take(&self) -> Option<VecDeque<FileMessage>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.messages.is_empty() && !state.must_end);
        let messages = std::mem::take(&mut state.messages);
        (!messages.is_empty()).then_some(messages)
    }
}

/// Tells that the thread has ended, also if it panics.
struct EndOfFileThread<'a>(&'a FileQueue);

impl Drop for EndOfFileThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        state.messages.clear();
        self.0.changed.notify_all();
    }
}
