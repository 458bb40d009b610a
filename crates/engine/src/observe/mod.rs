//! What is counted of requests: statistics as clients ask for them, metrics as dashboards scrape them.
mod host;
pub(crate) mod metrics;
mod record;
mod responses;

pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};
pub(crate) use record::{Lookup, Record};
pub use responses::ResponseStatistic;

/// Watches requests that are no traffic, such as padding rows and warm-up, or that have been counted otherwise.
pub(crate) struct Uncounted;

impl inference::Observe for Uncounted {
    fn ended(&self, _: &inference::Timeline, _: inference::Outcome<'_>) {}
    fn cancelled(&self, _: Option<inference::EntryId>) {}
}
