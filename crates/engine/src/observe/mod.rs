//! Counters of requests: statistics for clients, and metrics for dashboards.
mod host;
pub(crate) mod metrics;
mod record;
mod responses;

pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};
pub(crate) use record::{Lookup, Record};
pub use responses::ResponseStatistic;

/// The response path of requests that the engine does not count, such as padding rows and warm-up, or that it has
/// already counted.
pub(crate) struct Uncounted;

impl inference::ResponsePath for Uncounted {}
