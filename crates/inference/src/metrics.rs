//! Metrics that are not counted by the server itself.

/// Whoever has metrics of their own to show behind the server's.
pub trait MetricSource: Send + Sync {
    /// Appends them as Prometheus text 0.0.4, whole lines. Must not block for long: a scrape waits.
    fn append_to(&self, text: &mut String);
}
