//! Quantiles of a stream of values, each within a stated error of its rank, in little memory.
//!
//! The method is that of Cormode, Korn, Muthukrishnan and Srivastava for targeted quantiles (ICDE 2005): a sorted list
//! of samples, each with the number of values that it stands for, and with how uncertain its rank is. Samples are
//! joined where no wanted quantile needs the distinction.

/// A quantile that is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WantedQuantile {
    /// From 0 to 1.
    pub quantile: f64,
    /// How far the rank of the answer may be off, as a share of the number of values.
    pub error: f64,
}

/// Values wait here until they are merged, because the merge walks through all samples.
const WAITING: usize = 512;

/// A sample of the sorted values.
#[derive(Debug, Clone, Copy)]
struct QuantileSample {
    value: f64,
    /// The number of values that the sample stands for.
    weight: u64,
    /// The rank of the value may be larger by this.
    slack: u64,
}

/// See the module documentation.
#[derive(Debug, Default, Clone)]
pub(super) struct QuantileSketch {
    samples: Vec<QuantileSample>,
    waiting: Vec<f64>,
    /// The number of merged values.
    merged: u64,
}

impl QuantileSketch {
    /// Adds a value.
    pub(super) fn insert(&mut self, value: f64, wanted: &[WantedQuantile]) {
        self.waiting.push(value);
        if self.waiting.len() >= WAITING {
            self.merge(wanted);
        }
    }

    /// Forgets all values.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The value of a quantile; NaN without values.
    pub(super) fn query(&mut self, quantile: f64, wanted: &[WantedQuantile]) -> f64 {
        self.merge(wanted);
        let Some(first) = self.samples.first() else { return f64::NAN };
        let rank = (quantile * self.merged as f64).ceil();
        let most = rank + self.slack_at(rank, wanted) / 2.0;
        let (mut below, mut answer) = (0, first.value);
        for sample in &self.samples {
            if (below + sample.weight + sample.slack) as f64 > most {
                break;
            }
            below += sample.weight;
            answer = sample.value;
        }
        answer
    }

    fn merge(&mut self, wanted: &[WantedQuantile]) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_unstable_by(f64::total_cmp);
        let old = std::mem::take(&mut self.samples);
        let mut old = old.into_iter().peekable();
        let mut below = 0;
        for value in waiting.drain(..) {
            while let Some(sample) = old.next_if(|sample| sample.value <= value) {
                below += sample.weight;
                self.samples.push(sample);
            }
            // The smallest and the largest value have exact ranks.
            let is_inner = !self.samples.is_empty() && old.peek().is_some();
            let slack = if is_inner { self.slack_at(below as f64, wanted).floor() as u64 } else { 0 };
            self.samples.push(QuantileSample { value, weight: 1, slack: slack.saturating_sub(1) });
            self.merged += 1;
            below += 1;
        }
        self.samples.extend(old);
        self.waiting = waiting;
        self.compress(wanted);
    }

    /// Joins each sample with the next one if the ranks stay certain enough.
    fn compress(&mut self, wanted: &[WantedQuantile]) {
        let mut kept: Vec<QuantileSample> = Vec::with_capacity(self.samples.len());
        // From the largest value to the smallest, so that a sample is joined with its larger neighbour.
        let mut rank = self.merged;
        for &sample in self.samples.iter().rev() {
            rank -= sample.weight;
            let is_smallest = rank == 0;
            match kept.last_mut() {
                Some(next)
                    if !is_smallest
                        && (sample.weight + next.weight + next.slack) as f64
                            <= self.slack_at(rank as f64, wanted) =>
                {
                    next.weight += sample.weight;
                }
                _ => kept.push(sample),
            }
        }
        kept.reverse();
        self.samples = kept;
    }

    /// How uncertain a rank may be.
    fn slack_at(&self, rank: f64, wanted: &[WantedQuantile]) -> f64 {
        let count = self.merged as f64;
        let allowed = wanted.iter().map(|&WantedQuantile { quantile, error }| {
            if rank >= quantile * count {
                2.0 * error * rank / quantile
            } else {
                2.0 * error * (count - rank) / (1.0 - quantile)
            }
        });
        allowed.filter(|slack| slack.is_finite()).fold(count, f64::min).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

    use super::*;

    const WANTED: [WantedQuantile; 5] = [
        WantedQuantile { quantile: 0.5, error: 0.05 },
        WantedQuantile { quantile: 0.9, error: 0.01 },
        WantedQuantile { quantile: 0.95, error: 0.001 },
        WantedQuantile { quantile: 0.99, error: 0.001 },
        WantedQuantile { quantile: 0.999, error: 0.001 },
    ];

    fn sketch(values: &[f64]) -> QuantileSketch {
        let mut sketch = QuantileSketch::default();
        values.iter().for_each(|value| sketch.insert(*value, &WANTED));
        sketch
    }

    /// The ranks, as shares of the number of values, that equal values of the answer have.
    fn ranks(sorted: &[f64], answer: f64) -> (f64, f64) {
        let count = sorted.len() as f64;
        let below = sorted.partition_point(|value| *value < answer) as f64;
        let up_to = sorted.partition_point(|value| *value <= answer) as f64;
        (below / count, up_to / count)
    }

    fn assert_within_errors(name: &str, mut values: Vec<f64>) -> usize {
        let mut sketch = sketch(&values);
        values.sort_by(f64::total_cmp);
        let one = 1.0 / values.len() as f64;
        for WantedQuantile { quantile, error } in WANTED {
            let answer = sketch.query(quantile, &WANTED);
            let (low, high) = ranks(&values, answer);
            assert!(
                low <= quantile + error + one && high >= quantile - error - one,
                "{name}: the answer {answer} for {quantile} has the ranks {low} to {high}"
            );
        }
        sketch.samples.len()
    }

    #[test]
    fn every_wanted_quantile_is_within_its_error() {
        for seed in 0..8 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut uniform: Vec<f64> = (0..40_000).map(|_| random.random_range(0.0..1.0)).collect();
            assert_within_errors("uniform", uniform.clone());
            let steep = uniform.iter().map(|value| -(1.0 - value).ln()).collect();
            assert_within_errors("exponential", steep);
            let few = uniform.iter().map(|value| (value * 3.0).floor()).collect();
            assert_within_errors("three values", few);
            uniform.sort_by(f64::total_cmp);
            assert_within_errors("ascending", uniform.clone());
            uniform.reverse();
            assert_within_errors("descending", uniform.clone());
            uniform.shuffle(&mut random);
            assert_within_errors("few of them", uniform[..100].to_vec());
        }
    }

    #[test]
    fn a_long_stream_takes_little_memory() {
        let mut random = StdRng::seed_from_u64(1);
        let values = (0..400_000).map(|_| random.random_range(0.0..1.0)).collect();
        let samples = assert_within_errors("long", values);
        assert!(samples < 4_000, "{samples} samples");
    }

    #[test]
    fn without_values_a_quantile_is_not_a_number() {
        let mut sketch = sketch(&[]);
        assert!(sketch.query(0.5, &WANTED).is_nan());
        sketch.insert(3.0, &WANTED);
        assert_eq!(sketch.query(0.5, &WANTED), 3.0);
        assert_eq!(sketch.query(0.999, &WANTED), 3.0);
        sketch.clear();
        assert!(sketch.query(0.5, &WANTED).is_nan());
    }
}
