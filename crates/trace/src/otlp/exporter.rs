//! Where the server hands over traces for a collector.
use std::{sync::Arc, time::Duration};

use vocabulary::Error;

use super::{queue::SpanQueue, thread::OtlpThread};
use crate::{config::OtlpConfig, metrics::TraceCounters, record::FinishedTrace};

/// Hands traces to the thread that sends spans.
pub(crate) struct OtlpExporter {
    shared: Arc<SpanQueue>,
    counters: Arc<TraceCounters>,
}

impl OtlpExporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// INVALID_ARG: the URL is not valid. INTERNAL: the thread cannot be started.
    pub(crate) fn start(config: &OtlpConfig, counters: Arc<TraceCounters>) -> Result<Self, Error> {
        let shared = Arc::new(SpanQueue::new(config));
        let thread = OtlpThread::new(config, counters.clone())?;
        let queue = shared.clone();
        let builder = std::thread::Builder::new().name("trace export".into());
        builder
            .spawn(move || {
                let _ended = queue.end_guard();
                thread.run(&queue);
            })
            .map_err(|error| {
                Error::internal(format!("failed to start the thread for trace export: {error}"))
            })?;
        Ok(Self { shared, counters })
    }

    /// Adds a trace, or drops it if too many spans wait.
    pub(crate) fn push(&self, trace: FinishedTrace) {
        if !self.shared.push(trace) {
            self.counters.dropped(1);
        }
    }

    pub(crate) fn finish(&self, most: Duration) -> bool {
        self.shared.finish(most)
    }
}

impl Drop for OtlpExporter {
    /// The thread ends without sending what it has, unless it has already been told when to end.
    fn drop(&mut self) {
        self.shared.end();
    }
}
