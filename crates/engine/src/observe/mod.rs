//! What is counted of requests: statistics as clients ask for them, metrics as dashboards scrape them.
mod host;
pub(crate) mod metrics;
mod record;

pub(crate) use record::Record;
pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};

/// Watches requests that are no traffic: padding rows and warm-up.
pub(crate) struct Uncounted;

impl inference::Observe for Uncounted {
    fn ended(&self, _: &inference::Timeline, _: inference::Outcome<'_>) {}
    fn cancelled(&self) {}
}
