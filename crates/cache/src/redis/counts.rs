//! What the cache counts, and its metrics.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use inference::metrics::{MetricFamilyText, MetricKind, MetricsText, label_text};
use vocabulary::LabelName;

use super::connection::OperationFailure;
use crate::use_counts::{UseCounts, append_gauge};

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheOperation {
    LookUp,
    Insertion,
}

impl CacheOperation {
    const ALL: [Self; 2] = [Self::LookUp, Self::Insertion];

    const fn label(self) -> &'static str {
        match self {
            Self::LookUp => "look_up",
            Self::Insertion => "insertion",
        }
    }
}

/// Why an operation was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationFailureReason {
    /// The store was not asked, because it is away.
    Away,
    /// Too many operations or bytes are under way.
    Limit,
    /// There was no reply in time.
    Timeout,
    /// The connection has ended.
    Connection,
    /// The store has replied with an error.
    Refused,
    /// The value is damaged or of another version.
    Unreadable,
}

impl OperationFailureReason {
    const ALL: [Self; 6] =
        [Self::Away, Self::Limit, Self::Timeout, Self::Connection, Self::Refused, Self::Unreadable];

    const fn label(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

impl From<&OperationFailure> for OperationFailureReason {
    fn from(failure: &OperationFailure) -> Self {
        match failure {
            OperationFailure::Away => Self::Away,
            OperationFailure::TimedOut => Self::Timeout,
            OperationFailure::Lost(_) => Self::Connection,
            OperationFailure::Refused(_) => Self::Refused,
        }
    }
}

/// What the cache has done since its start.
#[derive(Debug, Default)]
pub(super) struct OperationCounts {
    pub(super) uses: UseCounts,
    failures: [[AtomicU64; OperationFailureReason::ALL.len()]; CacheOperation::ALL.len()],
}

impl OperationCounts {
    /// An operation was not done.
    pub(super) fn failed(&self, operation: CacheOperation, reason: OperationFailureReason) {
        self.failures[operation as usize][reason as usize].fetch_add(1, Relaxed);
    }

    #[cfg(test)]
    pub(super) fn failures(&self, operation: CacheOperation, reason: OperationFailureReason) -> u64 {
        self.failures[operation as usize][reason as usize].load(Relaxed)
    }

    /// Appends the metrics of Triton's cache `local`, as far as this cache knows them, and those that only this one has.
    pub(super) fn append_to(&self, text: &mut MetricsText, is_available: bool) {
        self.uses.append_to(text);
        let help = "1 if the store of the response cache answers, 0 while it is away";
        append_gauge(text, "nereid_cache_available", help, f64::from(u8::from(is_available)));
        let help = "Number of operations of the response cache that were not done";
        let mut failures =
            MetricFamilyText::begin(text, "nereid_cache_failed_operations_total", MetricKind::Counter, help);
        for operation in CacheOperation::ALL {
            for reason in OperationFailureReason::ALL {
                let labels = [("operation", operation.label()), ("reason", reason.label())];
                let labels = labels.map(|(name, value)| (LabelName::of(name), value.to_owned())).into();
                let count = self.failures[operation as usize][reason as usize].load(Relaxed);
                failures.sample(&label_text(&labels), count as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn each_count_has_its_own_sample() {
        let counts = OperationCounts::default();
        let begun = Instant::now();
        [true, true, false].into_iter().for_each(|is_hit| counts.uses.looked_up(begun, is_hit));
        counts.uses.inserted(begun);
        for (count, (operation, reason)) in CacheOperation::ALL
            .into_iter()
            .flat_map(|operation| OperationFailureReason::ALL.map(|reason| (operation, reason)))
            .enumerate()
        {
            (0..count).for_each(|_| counts.failed(operation, reason));
        }
        let shown = |is_available| {
            let mut text = MetricsText::default();
            counts.append_to(&mut text, is_available);
            text.finish()
        };
        let text = shown(true);
        for line in [
            "nv_cache_num_lookups 3",
            "nv_cache_num_hits 2",
            "nv_cache_num_misses 1",
            "nereid_cache_available 1",
            "nereid_cache_failed_operations_total{operation=\"look_up\",reason=\"limit\"} 1",
            "nereid_cache_failed_operations_total{operation=\"look_up\",reason=\"unreadable\"} 5",
            "nereid_cache_failed_operations_total{operation=\"insertion\",reason=\"away\"} 6",
            "nereid_cache_failed_operations_total{operation=\"insertion\",reason=\"refused\"} 10",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 7);
        assert!(shown(false).contains("\nnereid_cache_available 0\n"));
    }
}
