//! Mode `opentelemetry`: traces as spans for a collector.
//!
//! A thread of its own makes spans, and sends them in batches. Requests hand their traces over through a queue with a
//! bound. A collector that is slow or away loses spans, and delays nothing.
mod client;
mod headers;
mod json;
mod protobuf;
mod spans;
mod thread;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use inference::{
    Error,
    lock::{Condvar, Mutex},
};
use tokio::sync::Notify;

use crate::{config::OtlpConfig, metrics::TraceCounters, record::FinishedTrace};
use thread::OtlpThread;

pub use headers::read_headers;

/// Hands traces to the thread that sends spans.
pub(crate) struct OtlpExporter {
    shared: Arc<SpanQueue>,
    counters: Arc<TraceCounters>,
}

/// The queue between requests and the thread.
pub(super) struct SpanQueue {
    state: Mutex<SpanQueueState>,
    max_spans: usize,
    batch: usize,
    phases: bool,
    /// Signalled when there is a whole batch, and when the thread must end.
    work: Notify,
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

impl OtlpExporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// INVALID_ARG: the URL is not valid. INTERNAL: the thread cannot be started.
    pub(crate) fn start(config: &OtlpConfig, counters: Arc<TraceCounters>) -> Result<Self, Error> {
        let shared = Arc::new(SpanQueue {
            state: Mutex::default(),
            max_spans: config.max_queue_size.max(1),
            batch: config.max_export_batch_size.max(1),
            phases: config.phases,
            work: Notify::new(),
            ended: Condvar::new(),
        });
        let thread = OtlpThread::new(config, counters.clone())?;
        let queue = shared.clone();
        let builder = std::thread::Builder::new().name("trace export".into());
        builder
            .spawn(move || {
                let _ended = EndOfExportThread(&queue);
                thread.run(&queue);
            })
            .map_err(|error| {
                Error::internal(format!("failed to start the thread for trace export: {error}"))
            })?;
        Ok(Self { shared, counters })
    }

    /// Adds a trace, or drops it if too many spans wait.
    pub(crate) fn push(&self, trace: FinishedTrace) {
        let spans = spans::count(&trace, self.shared.phases);
        let mut state = self.shared.state.lock();
        if state.has_ended || state.spans + spans > self.shared.max_spans {
            drop(state);
            return self.counters.dropped(1);
        }
        let before = state.spans;
        state.spans += spans;
        state.traces.push_back(trace);
        let is_batch = before < self.shared.batch && state.spans >= self.shared.batch;
        drop(state);
        if is_batch {
            self.shared.work.notify_one();
        }
    }

    pub(crate) fn finish(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.shared.state.lock();
        state.must_end_by = Some(until);
        self.shared.work.notify_one();
        while !state.has_ended {
            if self.shared.ended.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.has_ended && !state.lost_at_end
    }
}

impl Drop for OtlpExporter {
    /// The thread ends without sending what it has, unless it has already been told when to end.
    fn drop(&mut self) {
        self.shared.state.lock().must_end_by.get_or_insert_with(Instant::now);
        self.shared.work.notify_one();
    }
}

impl SpanQueue {
    /// Takes the traces that wait.
    fn take(&self) -> VecDeque<FinishedTrace> {
        std::mem::take(&mut self.state.lock().traces)
    }

    /// Spans were sent, or are lost.
    fn gone(&self, spans: usize) {
        let mut state = self.state.lock();
        state.spans = state.spans.saturating_sub(spans);
    }

    /// When the thread must have ended, if it must end.
    fn must_end_by(&self) -> Option<Instant> {
        self.state.lock().must_end_by
    }

    fn lost_at_end(&self) {
        self.state.lock().lost_at_end = true;
    }
}

/// Tells that the thread has ended, also if it panics.
struct EndOfExportThread<'a>(&'a SpanQueue);

impl Drop for EndOfExportThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        state.traces.clear();
        self.0.ended.notify_all();
    }
}
