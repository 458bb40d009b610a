//! The times at which the requests of an open loop are due: a Poisson process.
//!
//! The gaps are independent and exponentially distributed, as if many unrelated users sent requests. The schedule
//! depends only on rate and seed, and never on the time of responses. Therefore latency that is measured from the
//! schedule is free of coordinated omission.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The endless schedule: offsets from the start of the run, in ascending order.
pub(crate) struct Arrivals {
    random: StdRng,
    /// The mean gap, in seconds.
    mean_gap: f64,
    /// The sum of the gaps so far, in seconds.
    elapsed: f64,
}

impl Arrivals {
    /// `rate` is in requests per second and above zero.
    pub(crate) fn poisson(rate: f64, seed: u64) -> Arrivals {
        debug_assert!(rate > 0.0);
        Arrivals { random: StdRng::seed_from_u64(seed), mean_gap: 1.0 / rate, elapsed: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let uniform: f64 = self.random.random();
        self.elapsed -= (1.0 - uniform).ln() * self.mean_gap;
        Some(Duration::from_secs_f64(self.elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 100_000;

    fn gaps(rate: f64, seed: u64) -> Vec<f64> {
        let times: Vec<f64> =
            Arrivals::poisson(rate, seed).take(COUNT).map(|time| time.as_secs_f64()).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn the_mean_rate_is_the_one_asked_for() {
        let last = Arrivals::poisson(500.0, 7).take(COUNT).last().unwrap();
        let rate = COUNT as f64 / last.as_secs_f64();
        assert!((rate / 500.0 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn gaps_vary_as_much_as_their_mean() {
        let gaps = gaps(1000.0, 3);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "exponential gaps: deviation = mean");
        assert!(gaps.iter().all(|&gap| gap >= 0.0));
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_does_not() {
        let schedule = |seed| Arrivals::poisson(100.0, seed).take(50).collect::<Vec<_>>();
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
    }
}
