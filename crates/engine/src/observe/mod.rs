//! What is counted of requests: statistics as clients ask for them, metrics as dashboards scrape them.
mod host;
pub(crate) mod metrics;
mod record;

pub(crate) use record::Record;
pub use record::{BatchStatistic, DurationStatistic, ModelStatistics};
