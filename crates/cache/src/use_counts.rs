//! How often a cache was used, how long that took, and the metrics of it that Triton's cache `local` has too.
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use inference::metrics::{MetricFamilyText, MetricKind, MetricsText};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct UseCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    look_up_nanos: AtomicU64,
    insertion_nanos: AtomicU64,
}

impl UseCounts {
    /// A look-up has ended. A look-up that failed is a miss.
    pub(crate) fn looked_up(&self, begun: Instant, is_hit: bool) {
        if is_hit { &self.hits } else { &self.misses }.fetch_add(1, Relaxed);
        add_time_since(&self.look_up_nanos, begun);
    }

    /// An insertion has ended.
    pub(crate) fn inserted(&self, begun: Instant) {
        add_time_since(&self.insertion_nanos, begun);
    }

    /// Look-ups that found an answer.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    /// Look-ups that found none.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }

    /// The time that all look-ups took together.
    pub(crate) fn look_up_time(&self) -> Duration {
        Duration::from_nanos(self.look_up_nanos.load(Relaxed))
    }

    /// The time that all insertions took together.
    pub(crate) fn insertion_time(&self) -> Duration {
        Duration::from_nanos(self.insertion_nanos.load(Relaxed))
    }

    /// Appends the metrics `nv_cache_*` of these counts.
    pub(crate) fn append_to(&self, text: &mut MetricsText) {
        let (hits, misses) = (self.hits(), self.misses());
        append_gauge(
            text,
            "nv_cache_num_lookups",
            "Number of cache lookups in response cache",
            (hits + misses) as f64,
        );
        append_gauge(text, "nv_cache_num_hits", "Number of cache hits in response cache", hits as f64);
        append_gauge(text, "nv_cache_num_misses", "Number of cache misses in response cache", misses as f64);
        append_gauge(
            text,
            "nv_cache_lookup_duration",
            "Total cache lookup duration (hit and miss), in microseconds",
            self.look_up_time().as_micros() as f64,
        );
        append_gauge(
            text,
            "nv_cache_insertion_duration",
            "Total cache insertion duration, in microseconds",
            self.insertion_time().as_micros() as f64,
        );
    }
}

/// Appends a gauge without labels.
pub(crate) fn append_gauge(text: &mut MetricsText, name: &str, help: &str, value: f64) {
    MetricFamilyText::begin(text, name, MetricKind::Gauge, help).sample("", value);
}

fn add_time_since(nanos: &AtomicU64, begun: Instant) {
    nanos.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
}
