//! The account of the requests of a model version: which are open, and what is counted of them, for statistics and metrics.
mod labels;
mod last_failure;
mod latencies;
mod open_requests;
mod quantile_summary;
mod quantiles;
mod request_account;
mod request_counters;
mod responses;
mod sharded_histogram;
mod times;

pub(crate) use labels::SeriesLabels;
pub use last_failure::FailureSnapshot;
pub(crate) use latencies::{HistogramReadings, Latencies, SUMMARY_FAMILIES};
pub(crate) use open_requests::{ModelPin, OpenRequests};
pub(crate) use request_account::RequestAccount;
pub use request_counters::ModelStatistics;
pub(crate) use request_counters::{LookupTimes, RequestCounters};
pub use responses::ResponseStatistic;
pub(crate) use sharded_histogram::HistogramReading;
