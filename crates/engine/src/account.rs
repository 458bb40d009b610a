//! The account of the requests of a model version: which are open, and what is counted of them, for statistics and metrics.
mod in_flight;
mod labels;
mod last_failure;
mod latencies;
mod quantiles;
mod record;
mod request_account;
mod responses;
mod sharded_histogram;
mod summary;
mod times;

pub(crate) use in_flight::{InFlight, ModelPin};
pub(crate) use labels::SeriesLabels;
pub use last_failure::FailureSnapshot;
pub(crate) use latencies::{HistogramReadings, Latencies, SUMMARY_FAMILIES};
pub use record::ModelStatistics;
pub(crate) use record::{Lookup, Record};
pub(crate) use request_account::RequestAccount;
pub use responses::ResponseStatistic;
pub(crate) use sharded_histogram::HistogramReading;
