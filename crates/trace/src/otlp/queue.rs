//! The queue between requests and the thread that sends spans. It has a bound.
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use inference::lock::{Condvar, Mutex};
use tokio::sync::Notify;

use super::spans;
use crate::{config::OtlpConfig, record::FinishedTrace};

/// The queue between requests and the thread.
pub(super) struct SpanQueue {
    state: Mutex<SpanQueueState>,
    max_spans: usize,
    batch: usize,
    phases: bool,
    /// Signalled when there is a whole batch, and when the thread must end.
    pub(super) work: Notify,
    /// Signalled when the thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct SpanQueueState {
    traces: VecDeque<FinishedTrace>,
    /// The spans that wait, or are being sent.
    spans: usize,
    must_end_by: Option<Instant>,
    has_ended: bool,
    lost_at_end: bool,
}

impl SpanQueue {
    pub(super) fn new(config: &OtlpConfig) -> Self {
        Self {
            state: Mutex::default(),
            max_spans: config.max_queue_size.max(1),
            batch: config.max_export_batch_size.max(1),
            phases: config.phases,
            work: Notify::new(),
            ended: Condvar::new(),
        }
    }

    /// Adds a trace. Returns false, and drops it, if too many spans wait or the thread has ended.
    pub(super) fn push(&self, trace: FinishedTrace) -> bool {
        let spans = spans::count(&trace, self.phases);
        let mut state = self.state.lock();
        if state.has_ended || state.spans + spans > self.max_spans {
            return false;
        }
        let before = state.spans;
        state.spans += spans;
        state.traces.push_back(trace);
        let is_batch = before < self.batch && state.spans >= self.batch;
        drop(state);
        if is_batch {
            self.work.notify_one();
        }
        true
    }

    /// Tells the thread to send what waits, and waits for its end. Returns whether everything was sent.
    pub(super) fn finish(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.state.lock();
        state.must_end_by = Some(until);
        self.work.notify_one();
        while !state.has_ended {
            if self.ended.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.has_ended && !state.lost_at_end
    }

    /// Tells the thread to end at once, unless it has already been told when to end.
    pub(super) fn end(&self) {
        self.state.lock().must_end_by.get_or_insert_with(Instant::now);
        self.work.notify_one();
    }

    /// Notes the end of the thread when it is dropped.
    pub(super) fn end_guard(&self) -> EndOfExportThread<'_> {
        EndOfExportThread(self)
    }

    /// Takes the traces that wait.
    pub(super) fn take(&self) -> VecDeque<FinishedTrace> {
        std::mem::take(&mut self.state.lock().traces)
    }

    /// Spans were sent, or are lost.
    pub(super) fn gone(&self, spans: usize) {
        let mut state = self.state.lock();
        state.spans = state.spans.saturating_sub(spans);
    }

    /// When the thread must have ended, if it must end.
    pub(super) fn must_end_by(&self) -> Option<Instant> {
        self.state.lock().must_end_by
    }

    pub(super) fn lost_at_end(&self) {
        self.state.lock().lost_at_end = true;
    }
}

/// Tells that the thread has ended, also if it panics.
pub(super) struct EndOfExportThread<'a>(&'a SpanQueue);

impl Drop for EndOfExportThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        state.traces.clear();
        self.0.ended.notify_all();
    }
}
