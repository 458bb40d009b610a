//! A histogram of durations with a bounded relative error and a fixed size.
//!
//! Values are in nanoseconds. Each power of two is divided into [`STEPS`] equal steps. So the relative error of a value
//! is at most 1/128 (0.8 %), and the whole range of `u64` needs 58 KiB. Recording takes one index and one addition,
//! because the load generator does it for each request.

use std::time::Duration;

const STEP_BITS: u32 = 7;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (u64::BITS - STEP_BITS + 1) as usize * STEPS;

/// Counts of durations, in buckets of growing width. Invariant: `count` is the sum of the buckets.
#[derive(Clone)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    /// The sum of the squares, in square nanoseconds.
    squares: f64,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, squares: 0.0, max: 0 }
    }

    /// Adds all values of another histogram.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += count;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanoseconds)] += 1;
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.squares += (nanoseconds as f64).powi(2);
        self.max = self.max.max(nanoseconds);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The arithmetic mean, exact. Zero without values.
    pub(crate) fn mean(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => Duration::from_nanos((self.sum / u128::from(count)) as u64),
        }
    }

    /// The standard deviation of the values as a sample. Zero for fewer than two values.
    pub(crate) fn deviation(&self) -> Duration {
        if self.count < 2 {
            return Duration::ZERO;
        }
        let count = self.count as f64;
        let mean = self.sum as f64 / count;
        let variance = (self.squares - mean * mean * count) / (count - 1.0);
        Duration::from_nanos(variance.max(0.0).sqrt() as u64)
    }

    /// The values that are not zero times in the histogram: the upper end of a bucket, and its count.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, &count)| (Duration::from_nanos(last_of(bucket).min(self.max)), count))
    }

    /// The largest value, exact. Zero without values.
    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The smallest value that is not exceeded by the share `quantile` (0 to 1) of all values. It is rounded up to the
    /// end of its bucket. Zero without values.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let wanted = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(last_of(index).min(self.max));
            }
        }
        Duration::ZERO
    }
}

/// Each small value has its own bucket. Larger values share a bucket if their top eight bits are equal.
fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    shift as usize * STEPS + (value >> shift) as usize
}

/// The largest value in the bucket.
fn last_of(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let top = (bucket - shift * STEPS) as u128;
    u64::try_from(((top + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(Duration::from_nanos(value));
        }
        histogram
    }

    #[test]
    fn every_value_lies_in_its_bucket_and_after_the_one_before() {
        for exponent in 0..64 {
            for offset in [0_u64, 1, 5, 1000] {
                let value = (1_u64 << exponent).saturating_add(offset);
                let bucket = bucket_of(value);
                assert!(bucket < BUCKETS);
                assert!(last_of(bucket) >= value, "{value} is above its bucket {bucket}");
                assert!(bucket == 0 || last_of(bucket - 1) < value, "{value} is below its bucket {bucket}");
            }
        }
        assert_eq!(last_of(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn the_width_of_a_bucket_is_under_one_percent_of_its_values() {
        for bucket in 2 * STEPS..BUCKETS {
            let (first, last) = (last_of(bucket - 1) + 1, last_of(bucket));
            assert!((last - first) as f64 <= first as f64 / 127.0, "bucket {bucket}: {first} to {last}");
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution_are_right_to_one_percent() {
        let histogram = of((1..=10_000).map(|i| i * 1000));
        for (quantile, expected) in
            [(0.5, 5_000_000.0), (0.9, 9_000_000.0), (0.99, 9_900_000.0), (0.999, 9_990_000.0)]
        {
            let found = histogram.quantile(quantile).as_nanos() as f64;
            assert!((found / expected - 1.0).abs() < 0.01, "p{quantile}: {found}");
        }
        assert_eq!(histogram.quantile(1.0), Duration::from_nanos(10_000_000));
        assert_eq!(histogram.mean(), Duration::from_nanos(5_000_500));
        assert_eq!(histogram.max(), Duration::from_nanos(10_000_000));
    }

    #[test]
    fn a_single_outlier_is_the_maximum_but_not_the_median() {
        let histogram = of([100, 100, 100, 1_000_000_000]);
        assert_eq!(histogram.quantile(0.5), Duration::from_nanos(100));
        assert_eq!(histogram.quantile(0.99), Duration::from_secs(1));
        assert_eq!(histogram.count(), 4);
    }

    #[test]
    fn a_merged_histogram_is_that_of_all_values() {
        let mut merged = of([1000, 2000]);
        merged.merge(&of([3000, 4000]));
        let whole = of([1000, 2000, 3000, 4000]);
        assert_eq!((merged.count(), merged.mean(), merged.max()), (4, whole.mean(), whole.max()));
        assert_eq!(merged.deviation(), whole.deviation());
        assert_eq!(merged.quantile(0.5), whole.quantile(0.5));
        assert_eq!(merged.counts().map(|(_, count)| count).sum::<u64>(), 4);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(of([2_000, 4_000, 4_000, 4_000, 5_000, 5_000, 7_000, 9_000]).deviation().as_nanos(), 2138);
        assert_eq!(of([7]).deviation(), Duration::ZERO);
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let histogram = Histogram::new();
        assert_eq!((histogram.quantile(0.99), histogram.mean(), histogram.max()), Default::default());
    }
}
