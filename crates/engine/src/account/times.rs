//! The quantiles of a model's times, from its histograms.
use super::{RequestCounters, latencies::HistogramReadings, sharded_histogram::HistogramReading};
use crate::snapshot::{TimeQuantiles, TimesSnapshot};

impl RequestCounters {
    /// How the times of successful requests are distributed. `None` without histograms or without requests.
    pub(crate) fn times(&self) -> Option<TimesSnapshot> {
        let HistogramReadings { request, queue, compute } = self.latencies().read_histograms()?;
        let quantiles = |reading: &HistogramReading| {
            let at = |quantile| nanos_at(&reading.bounds, &reading.counts, quantile) / 1e9;
            TimeQuantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
        };
        Some(TimesSnapshot {
            request: quantiles(&request),
            queue: quantiles(&queue),
            compute: quantiles(&compute),
        })
    }
}

/// The quantile in nanoseconds. Within a bucket, values count as evenly distributed. What exceeds all bounds counts as the
/// last bound. 0 without values.
fn nanos_at(bounds: &[u64], counts: &[u64], quantile: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let rank = quantile * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bucket, &count) in counts.iter().enumerate() {
        let Some(&upper) = bounds.get(bucket) else { break };
        let (count, upper) = (count as f64, upper as f64);
        if count > 0.0 && below + count >= rank {
            return lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0);
        }
        below += count;
        lower = upper;
    }
    if total == 0 { 0.0 } else { lower }
}

#[cfg(test)]
mod tests {
    use super::nanos_at;

    #[test]
    fn a_quantile_is_in_its_bucket() {
        let (bounds, counts) = ([100, 200, 400], [10, 0, 10, 0]);
        for (quantile, expected) in [(0.0, 0.0), (0.25, 50.0), (0.5, 100.0), (0.75, 300.0), (1.0, 400.0)] {
            assert_eq!(nanos_at(&bounds, &counts, quantile), expected, "{quantile}");
        }
    }

    #[test]
    fn values_above_all_bounds_count_as_the_last_bound_and_none_as_nothing() {
        assert_eq!(nanos_at(&[100, 200], &[1, 0, 9], 0.5), 200.0);
        assert_eq!(nanos_at(&[100, 200], &[0, 0, 0], 0.99), 0.0);
    }
}
