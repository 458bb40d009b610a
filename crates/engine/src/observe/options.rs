//! Which metrics the server shows.
use std::time::Duration;

/// Which families are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOptions {
    /// `counter_latencies`: the cumulative duration counters, including those of the cache.
    pub counter_latencies: bool,
    /// `summary_latencies`: quantiles of the durations of the last minute.
    pub summary_latencies: bool,
    /// `histogram_latencies`: the time to the first response.
    pub histogram_latencies: bool,
    /// `summary_quantiles`: the quantiles of summaries, from 0 to 1.
    pub quantiles: Vec<f64>,
    /// `model_histograms`: the distributions that only Nereid has.
    pub model_histograms: bool,
    /// `--allow-cpu-metrics`: processors and memory of the host.
    pub host: bool,
    /// `--metrics-interval-ms`: values of the host are measured again after half of this time, as in Triton.
    pub interval: Duration,
}

/// The defaults of the command line.
impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            counter_latencies: true,
            summary_latencies: false,
            histogram_latencies: false,
            quantiles: vec![0.5, 0.9, 0.95, 0.99, 0.999],
            model_histograms: true,
            host: true,
            interval: Duration::from_secs(2),
        }
    }
}

impl MetricsOptions {
    /// Nothing beyond what the statistics count.
    pub fn none() -> Self {
        Self { counter_latencies: false, model_histograms: false, host: false, ..Self::default() }
    }

    /// Reads a quantile of `summary_quantiles`: `0.99:0.001`, the quantile and the error that Triton may make. `None` if
    /// one of them is not from 0 to 1. The error has no other effect: quantiles are within 0.4 % of their values.
    pub fn quantile(text: &str) -> Option<f64> {
        let (quantile, error) = text.split_once(':')?;
        let read = |text: &str| text.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value));
        read(error)?;
        read(quantile)
    }
}
