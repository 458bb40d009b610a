//! A measurement that the search knows.

use super::cost::BatchTime;
use super::space::TuningPoint;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningSample {
    /// What was measured.
    pub point: TuningPoint,
    /// Requests per second.
    pub rate: f64,
    /// The latency of the chosen percentile, in milliseconds.
    pub latency_ms: f64,
    /// The times of the batches.
    pub batches: Vec<BatchTime>,
}
