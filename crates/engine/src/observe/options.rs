//! Which metrics the server shows.
use std::time::Duration;

use super::quantiles::WantedQuantile;

/// Which families are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOptions {
    /// `counter_latencies`: the cumulative duration counters, including those of the cache.
    pub counter_latencies: bool,
    /// `summary_latencies`: quantiles of the durations of the last minute.
    pub summary_latencies: bool,
    /// `histogram_latencies`: the time to the first response.
    pub histogram_latencies: bool,
    /// `summary_quantiles`: the quantiles of summaries.
    pub quantiles: Vec<WantedQuantile>,
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
        let quantiles = [(0.5, 0.05), (0.9, 0.01), (0.95, 0.001), (0.99, 0.001), (0.999, 0.001)];
        Self {
            counter_latencies: true,
            summary_latencies: false,
            histogram_latencies: false,
            quantiles: quantiles.map(|(quantile, error)| WantedQuantile { quantile, error }).to_vec(),
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
}
