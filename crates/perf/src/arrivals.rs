//! The times at which the requests of an open loop are due.
//!
//! The gaps are equal; or independent and exponentially distributed, as if many unrelated users sent requests; or those
//! of a file. The schedule never depends on the time of responses. Therefore latency that is measured from the schedule
//! is free of coordinated omission.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::options::Distribution;

/// The endless schedule: offsets from the start of the run, in ascending order.
pub(crate) struct Arrivals {
    gaps: Gaps,
    /// The sum of the gaps so far, in seconds.
    elapsed: f64,
}

enum Gaps {
    Constant { seconds: f64 },
    Exponential { mean_seconds: f64, random: Box<StdRng> },
    Listed { gaps: Vec<Duration>, next: usize },
}

impl Arrivals {
    /// `rate` is in requests per second and above zero.
    pub(crate) fn new(distribution: Distribution, rate: f64, seed: u64) -> Arrivals {
        debug_assert!(rate > 0.0, "the options refuse other rates");
        let gaps = match distribution {
            Distribution::Constant => Gaps::Constant { seconds: 1.0 / rate },
            Distribution::Poisson => {
                Gaps::Exponential { mean_seconds: 1.0 / rate, random: Box::new(StdRng::seed_from_u64(seed)) }
            }
        };
        Arrivals { gaps, elapsed: 0.0 }
    }

    /// These gaps, again and again. Their sum is above zero.
    pub(crate) fn listed(gaps: Vec<Duration>) -> Arrivals {
        Arrivals { gaps: Gaps::Listed { gaps, next: 0 }, elapsed: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.elapsed += match &mut self.gaps {
            Gaps::Constant { seconds } => *seconds,
            Gaps::Exponential { mean_seconds, random } => {
                // 1 - u lies in (0, 1], so the logarithm is finite.
                let uniform: f64 = random.random();
                -(1.0 - uniform).ln() * *mean_seconds
            }
            Gaps::Listed { gaps, next } => {
                let gap = gaps[*next];
                *next = (*next + 1) % gaps.len();
                gap.as_secs_f64()
            }
        };
        Some(Duration::from_secs_f64(self.elapsed))
    }
}

/// Reads gaps in microseconds, one in each line.
///
/// # Errors
/// The file cannot be read, a line is no number, or the sum of the gaps is zero.
pub(crate) fn read_gaps(path: &Path) -> Result<Vec<Duration>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut gaps = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let gap = line.trim().parse().with_context(|| {
            format!("{}:{}: '{line}' is no number of microseconds", path.display(), index + 1)
        })?;
        gaps.push(Duration::from_micros(gap));
    }
    ensure!(gaps.iter().any(|gap| !gap.is_zero()), "{} has no gap above zero", path.display());
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 100_000;

    fn poisson(rate: f64, seed: u64) -> Arrivals {
        Arrivals::new(Distribution::Poisson, rate, seed)
    }

    fn gaps(rate: f64, seed: u64) -> Vec<f64> {
        let times: Vec<f64> = poisson(rate, seed).take(COUNT).map(|time| time.as_secs_f64()).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn the_mean_rate_is_the_one_asked_for() {
        let last = poisson(500.0, 7).take(COUNT).last().unwrap();
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
        let schedule = |seed| poisson(100.0, seed).take(50).collect::<Vec<_>>();
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
    }

    #[test]
    fn constant_gaps_are_equal() {
        let times: Vec<_> = Arrivals::new(Distribution::Constant, 250.0, 1).take(3).collect();
        assert_eq!(times, [4, 8, 12].map(Duration::from_millis));
    }

    #[test]
    fn listed_gaps_repeat() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"100000\n200000\n\n500000\n").unwrap();
        let gaps = read_gaps(file.path()).unwrap();
        let times: Vec<_> = Arrivals::listed(gaps).take(4).map(|time| time.as_millis()).collect();
        assert_eq!(times, [100, 300, 800, 900]);
    }

    #[test]
    fn gaps_that_are_none_are_refused_with_their_line() {
        for (text, word) in [("1\nx\n", ":2: 'x'"), ("0\n", "no gap above zero"), ("", "no gap")] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            let error = format!("{:#}", read_gaps(file.path()).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
