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
pub use record::ModelStatistics;
pub(crate) use record::{Lookup, Record};
pub use responses::ResponseStatistic;
pub(crate) use sharded_histogram::HistogramReading;
