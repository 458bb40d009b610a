//! The counters of tracing, and the log lines about traces that are lost.
use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use inference::{
    MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricsText},
};
use line_writer::LineCounts;

/// Counts traces.
#[derive(Debug, Default)]
pub(crate) struct TraceCounters {
    exports: Arc<LineCounts>,
    dropped: AtomicU64,
    dropped_elements: AtomicU64,
    is_dropping: AtomicBool,
    is_failing: AtomicBool,
}

impl TraceCounters {
    /// The counts of traces that were written or sent, and of those that could not be.
    pub(crate) fn exports(&self) -> &Arc<LineCounts> {
        &self.exports
    }

    /// Traces were sent.
    pub(crate) fn exported(&self, traces: u64) {
        self.exports.add_written(traces);
        self.export_works();
    }

    /// Traces were written or sent, and are counted.
    pub(crate) fn export_works(&self) {
        self.is_dropping.store(false, Relaxed);
    }

    /// Traces were dropped, because what takes them is too slow.
    pub(crate) fn dropped(&self, traces: u64) {
        self.dropped.fetch_add(traces, Relaxed);
        self.note_drop();
    }

    /// A time or a tensor was dropped, because the memory for traces is full.
    pub(crate) fn element_dropped(&self) {
        self.dropped_elements.fetch_add(1, Relaxed);
        self.note_drop();
    }

    fn note_drop(&self) {
        if !self.is_dropping.swap(true, AcqRel) {
            log::warn!(
                "traces are dropped: they come faster than they can be written or sent (counted in nereid_trace_dropped)"
            );
        }
    }

    /// Traces could not be sent, and are lost.
    pub(crate) fn failed(&self, traces: u64, why: &dyn std::fmt::Display) {
        self.exports.add_lost(traces);
        if !self.is_failing.swap(true, AcqRel) {
            log::error!(
                "{why}; traces are lost until it works again (counted in nereid_trace_export_failures)"
            );
        }
    }

    /// Traces can be sent again.
    pub(crate) fn works(&self, what: &dyn std::fmt::Display) {
        if self.is_failing.load(Relaxed) && self.is_failing.swap(false, AcqRel) {
            log::info!("{what} takes traces again");
        }
    }

    #[cfg(test)]
    pub(crate) fn read(&self) -> [u64; 4] {
        let (dropped, elements) = (self.dropped.load(Relaxed), self.dropped_elements.load(Relaxed));
        [self.exports.written(), dropped, elements, self.exports.lost()]
    }
}

impl MetricSource for TraceCounters {
    fn append_to(&self, text: &mut MetricsText) {
        let families = [
            (
                "nereid_trace_exported",
                "Number of traces that were written to a file or sent to a collector",
                self.exports.written(),
            ),
            (
                "nereid_trace_dropped",
                "Number of traces that were dropped because too many waited",
                self.dropped.load(Relaxed),
            ),
            (
                "nereid_trace_dropped_elements",
                "Number of times and tensors that traces lack because the memory for traces was full",
                self.dropped_elements.load(Relaxed),
            ),
            (
                "nereid_trace_export_failures",
                "Number of traces that were lost because a file or a collector failed",
                self.exports.lost(),
            ),
        ];
        for (name, help, count) in families {
            MetricFamilyText::begin(text, name, MetricKind::Counter, help).sample("", count as f64);
        }
    }
}
