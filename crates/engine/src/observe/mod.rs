//! Counters of requests: statistics for clients, and metrics for dashboards.
mod host;
mod labels;
mod latencies;
pub(crate) mod metrics;
mod quantiles;
mod record;
mod responses;
mod sharded_histogram;
mod summary;
mod times;

pub(crate) use latencies::Latencies;
pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};
pub(crate) use record::{Lookup, Record};
pub use responses::ResponseStatistic;

/// The response path of requests that the engine does not count, such as padding rows and warm-up, or that it has
/// already counted.
pub(crate) struct Uncounted;

impl inference::ResponsePath for Uncounted {}
