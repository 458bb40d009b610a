//! Counters of requests: statistics for clients, and metrics for dashboards.
mod labels;
mod latencies;
mod quantiles;
mod record;
mod responses;
mod sharded_histogram;
mod summary;
mod times;

pub(crate) use labels::SeriesLabels;
pub(crate) use latencies::{HistogramReadings, Latencies, SUMMARY_FAMILIES};
pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};
pub(crate) use record::{Lookup, Record};
pub use responses::ResponseStatistic;
pub(crate) use sharded_histogram::HistogramReading;

/// The response path of requests that the engine does not count, such as padding rows and warm-up, or that it has
/// already counted.
pub(crate) struct Uncounted;

impl inference::ResponsePath for Uncounted {}
