//! Quantiles of durations, by counting them in buckets that are narrow everywhere.
//!
//! Each doubling of the duration has the same number of buckets, as in an HDR histogram. So an answer is within 0.4 % of
//! the exact quantile, an insertion is one addition, and counts of different times can be added.
use std::time::Duration;

use scheduling::nanos;

/// The buckets of a doubling.
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 7;

/// Doublings of 64-bit numbers. The first one has the numbers below [`BUCKETS`].
const DOUBLINGS: usize = (u64::BITS - BUCKET_BITS + 1) as usize;

/// The number of durations in each bucket. Most models need a few doublings, so that the others have no memory.
#[derive(Debug, Clone)]
pub(super) struct DurationCounts {
    doublings: [Option<Box<[u32; BUCKETS]>>; DOUBLINGS],
    total: u64,
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self { doublings: [const { None }; DOUBLINGS], total: 0 }
    }
}

impl DurationCounts {
    /// Counts a duration.
    pub(super) fn insert(&mut self, duration: Duration) {
        let (doubling, bucket) = place_of(nanos(duration));
        let buckets = self.doublings[doubling].get_or_insert_with(|| Box::new([0; BUCKETS]));
        buckets[bucket] = buckets[bucket].saturating_add(1);
        self.total += 1;
    }

    /// Forgets all durations. The memory stays for the next ones.
    pub(super) fn clear(&mut self) {
        self.doublings.iter_mut().flatten().for_each(|buckets| buckets.fill(0));
        self.total = 0;
    }
}

/// The quantiles of all durations of `parts` together, in nanoseconds: NaN without durations. `quantiles` are from 0 to 1.
pub(super) fn quantiles_of(parts: &[DurationCounts], quantiles: &[f64]) -> Vec<f64> {
    let total: u64 = parts.iter().map(|part| part.total).sum();
    let rank = |quantile: f64| ((quantile * total as f64).ceil() as u64).clamp(1, total);
    quantiles
        .iter()
        .map(|&quantile| if total == 0 { f64::NAN } else { value_at(parts, rank(quantile)) })
        .collect()
}

/// The value with this rank among all durations. The smallest has rank 1.
fn value_at(parts: &[DurationCounts], rank: u64) -> f64 {
    let mut up_to = 0;
    for doubling in 0..DOUBLINGS {
        let parts: Vec<_> = parts.iter().filter_map(|part| part.doublings[doubling].as_deref()).collect();
        for bucket in 0..BUCKETS {
            up_to += parts.iter().map(|buckets| u64::from(buckets[bucket])).sum::<u64>();
            if up_to >= rank {
                return middle_of(doubling, bucket);
            }
        }
    }
    f64::NAN
}

/// The doubling and the bucket of a number.
fn place_of(nanos: u64) -> (usize, usize) {
    let doubling = (u64::BITS - nanos.leading_zeros()).saturating_sub(BUCKET_BITS);
    let bucket = nanos >> doubling.saturating_sub(1);
    (doubling as usize, bucket as usize % BUCKETS)
}

/// What a bucket stands for: the middle of its numbers.
fn middle_of(doubling: usize, bucket: usize) -> f64 {
    if doubling == 0 {
        return bucket as f64;
    }
    let width = (1_u64 << (doubling - 1)) as f64;
    let first = (BUCKETS + bucket) as f64 * width;
    first + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    const QUANTILES: [f64; 7] = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

    fn counted(values: &[u64]) -> DurationCounts {
        let mut counts = DurationCounts::default();
        values.iter().for_each(|value| counts.insert(Duration::from_nanos(*value)));
        counts
    }

    fn assert_close(name: &str, mut values: Vec<u64>) {
        let parts: Vec<_> = values.chunks(1_000).map(counted).collect();
        let answers = quantiles_of(&parts, &QUANTILES);
        values.sort_unstable();
        for (quantile, answer) in QUANTILES.into_iter().zip(answers) {
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1] as f64;
            assert!((answer - exact).abs() <= exact * 0.004, "{name}, {quantile}: {answer} for {exact}");
        }
    }

    #[test]
    fn quantiles_are_within_their_error_for_every_distribution() {
        for seed in 0..8 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut many =
                |largest: u64| (0..20_000).map(|_| random.random_range(0..=largest)).collect::<Vec<_>>();
            assert_close("uniform", many(10_000_000));
            assert_close("all numbers", many(u64::MAX));
            assert_close("small", many(300));
            let steep = many(63).into_iter().map(|bits| 1 << bits).collect();
            assert_close("powers of two", steep);
            assert_close("one value", vec![1_234_567; 10]);
        }
    }

    #[test]
    fn every_number_has_a_bucket_whose_middle_is_close() {
        for power in 0..64 {
            for number in [(1_u64 << power) - 1, 1 << power, (1 << power) + 1] {
                let (doubling, bucket) = place_of(number);
                let middle = middle_of(doubling, bucket);
                assert!((middle - number as f64).abs() <= number as f64 / 256.0, "{number}: {middle}");
            }
        }
        let (doubling, bucket) = place_of(u64::MAX);
        assert_eq!((doubling, bucket), (DOUBLINGS - 1, BUCKETS - 1));
    }

    #[test]
    fn without_durations_a_quantile_is_not_a_number() {
        let mut counts = counted(&[3]);
        assert_eq!(quantiles_of(&[counts.clone()], &[0.5]), [3.0]);
        counts.clear();
        assert!(quantiles_of(&[counts], &[0.5])[0].is_nan());
        assert!(quantiles_of(&[], &[0.5])[0].is_nan());
    }
}
