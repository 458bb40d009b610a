//! The summaries of a model: quantiles of what happened in the last minute (`summary_latencies`).
use std::time::Duration;

use inference::Timestamp;

use super::quantiles::{DurationCounts, quantiles_of};

/// The time that a summary looks back.
const WINDOW: Duration = Duration::from_secs(60);

/// The window moves in so many steps.
const STEPS: usize = 5;

/// Quantiles of the durations of the last minute, and the number and the sum of all durations.
///
/// The durations of each step of the window are counted apart. The oldest step is forgotten when a new one begins, so that
/// the quantiles are those of the last 48 to 60 seconds.
pub(crate) struct QuantileSummary {
    steps: [DurationCounts; STEPS],
    /// The step that counts now.
    current: usize,
    /// When the window moves.
    next_step: Timestamp,
    count: u64,
    sum: Duration,
}

/// What a summary shows.
#[derive(Debug, PartialEq)]
pub(crate) struct SummaryReading {
    /// Each wanted quantile and its value in microseconds, which is NaN if the window is empty.
    pub(crate) quantiles: Vec<(f64, f64)>,
    /// The number of all values.
    pub(crate) count: u64,
    /// Their sum in microseconds.
    pub(crate) sum: f64,
}

impl QuantileSummary {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { steps: Default::default(), current: 0, next_step: now + step(), count: 0, sum: Duration::ZERO }
    }

    pub(crate) fn observe(&mut self, duration: Duration, now: Timestamp) {
        self.move_to(now);
        self.count += 1;
        self.sum += duration;
        self.steps[self.current].insert(duration);
    }

    pub(crate) fn read(&mut self, now: Timestamp, wanted: &[f64]) -> SummaryReading {
        self.move_to(now);
        let values = quantiles_of(&self.steps, wanted).into_iter().map(|nanos| nanos / 1e3);
        SummaryReading {
            quantiles: wanted.iter().copied().zip(values).collect(),
            count: self.count,
            sum: self.sum.as_secs_f64() * 1e6,
        }
    }

    fn move_to(&mut self, now: Timestamp) {
        // After a whole window without a look, nothing is left.
        if self.next_step + WINDOW <= now {
            self.steps.iter_mut().for_each(DurationCounts::clear);
            self.next_step = now + step();
        }
        while self.next_step <= now {
            self.current = (self.current + 1) % STEPS;
            self.steps[self.current].clear();
            self.next_step = self.next_step + step();
        }
    }
}

const fn step() -> Duration {
    Duration::from_secs(WINDOW.as_secs() / STEPS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(1) + Duration::from_secs(seconds)
    }

    fn median(summary: &mut QuantileSummary, seconds: u64) -> f64 {
        summary.read(at(seconds), &[0.5]).quantiles[0].1
    }

    #[test]
    fn a_value_counts_for_at_least_four_fifths_of_a_minute_and_at_most_a_minute() {
        for offset in 0..12 {
            let mut summary = QuantileSummary::new(at(0));
            summary.observe(Duration::from_nanos(100), at(offset));
            assert_eq!(median(&mut summary, offset + 48 - offset % 12 - 1), 0.1, "{offset}");
            assert_eq!(median(&mut summary, 59), 0.1);
            assert!(median(&mut summary, 60).is_nan(), "{offset}");
        }
    }

    #[test]
    fn the_window_forgets_old_values_and_keeps_new_ones() {
        let mut summary = QuantileSummary::new(at(0));
        for second in 0..200 {
            summary.observe(Duration::from_micros(second), at(second));
            let median = median(&mut summary, second);
            let window = second.min(48)..=second.min(60);
            let age = second as f64 - median;
            assert!(
                (*window.start() as f64 / 2.0 - 1.0..=*window.end() as f64 / 2.0 + 1.0).contains(&age),
                "{age}"
            );
        }
        let read = summary.read(at(1_000), &[0.5]);
        assert!(read.quantiles[0].1.is_nan());
        assert_eq!((read.count, read.sum), (200, 19_900.0));
    }
}
