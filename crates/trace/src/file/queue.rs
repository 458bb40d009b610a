//! The queue between requests and the thread that writes files.
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use inference::lock::{Condvar, Mutex};

use crate::record::FinishedTrace;

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

impl FileQueue {
    pub(super) fn push(&self, message: FileMessage) {
        let mut state = self.state.lock();
        // After the end, nobody takes messages.
        if !state.has_ended {
            state.messages.push_back(message);
            self.changed.notify_all();
        }
    }

    /// Waits for messages, and takes all of them. `None` when the thread must end.
    pub(super) fn take(&self) -> Option<VecDeque<FileMessage>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.messages.is_empty() && !state.must_end);
        let messages = std::mem::take(&mut state.messages);
        (!messages.is_empty()).then_some(messages)
    }

    /// Tells the thread to write what waits, and waits for its end, at most for that time. Returns whether it has ended.
    pub(super) fn finish(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.state.lock();
        state.must_end = true;
        self.changed.notify_all();
        while !state.has_ended {
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.has_ended
    }

    /// Tells the thread to write what waits, and to end.
    pub(super) fn end(&self) {
        self.state.lock().must_end = true;
        self.changed.notify_all();
    }

    /// Notes the end of the thread when it is dropped.
    pub(super) fn end_guard(&self) -> EndOfFileThread<'_> {
        EndOfFileThread(self)
    }
}

/// Notes that the thread has ended, also if it panics.
pub(super) struct EndOfFileThread<'a>(&'a FileQueue);

impl Drop for EndOfFileThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        state.messages.clear();
        self.0.changed.notify_all();
    }
}
