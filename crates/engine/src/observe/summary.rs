//! The summaries of a model: quantiles of what happened in the last minute (`summary_latencies`).
use std::time::Duration;

use inference::Timestamp;
use parking_lot::Mutex;

use super::quantiles::{QuantileSketch, WantedQuantile};

/// The time that a summary looks back.
const WINDOW: Duration = Duration::from_secs(60);

/// The window moves in so many steps.
const AGES: usize = 5;

/// Quantiles of the values of the last minute, and the number and the sum of all values.
///
/// There are [`AGES`] sketches. Each gets every value, and each in turn forgets everything, one at each step of the
/// window. The oldest one answers: it has seen at least four fifths of the window.
pub(crate) struct Summary {
    state: Mutex<SummaryState>,
}

struct SummaryState {
    sketches: [QuantileSketch; AGES],
    /// The sketch that forgets next, and that answers until then.
    oldest: usize,
    /// When the window moves.
    next_step: Timestamp,
    count: u64,
    sum: f64,
}

/// What a summary shows.
#[derive(Debug, PartialEq)]
pub(crate) struct SummaryReading {
    /// Each wanted quantile and its value, which is NaN if the window is empty.
    pub(crate) quantiles: Vec<(f64, f64)>,
    /// The number of all values.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: f64,
}

impl Summary {
    pub(crate) fn new(now: Timestamp) -> Self {
        let (sketches, next_step) = (Default::default(), now + step());
        let state = SummaryState { sketches, oldest: 0, next_step, count: 0, sum: 0.0 };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn observe(&self, value: f64, now: Timestamp, wanted: &[WantedQuantile]) {
        let mut state = self.state.lock();
        state.move_to(now);
        state.count += 1;
        state.sum += value;
        state.sketches.iter_mut().for_each(|sketch| sketch.insert(value, wanted));
    }

    pub(crate) fn read(&self, now: Timestamp, wanted: &[WantedQuantile]) -> SummaryReading {
        let mut state = self.state.lock();
        state.move_to(now);
        let SummaryState { sketches, oldest, count, sum, .. } = &mut *state;
        let sketch = &mut sketches[*oldest];
        let value =
            |wanted_one: &WantedQuantile| (wanted_one.quantile, sketch.query(wanted_one.quantile, wanted));
        SummaryReading { quantiles: wanted.iter().map(value).collect(), count: *count, sum: *sum }
    }
}

impl SummaryState {
    fn move_to(&mut self, now: Timestamp) {
        // After a whole window without a look, nothing is left.
        if self.next_step + WINDOW <= now {
            self.sketches.iter_mut().for_each(QuantileSketch::clear);
            self.next_step = now + step();
        }
        while self.next_step <= now {
            self.sketches[self.oldest].clear();
            self.oldest = (self.oldest + 1) % AGES;
            self.next_step = self.next_step + step();
        }
    }
}

const fn step() -> Duration {
    Duration::from_secs(WINDOW.as_secs() / AGES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIAN: [WantedQuantile; 1] = [WantedQuantile { quantile: 0.5, error: 0.01 }];

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(1) + Duration::from_secs(seconds)
    }

    fn median(summary: &Summary, seconds: u64) -> f64 {
        summary.read(at(seconds), &MEDIAN).quantiles[0].1
    }

    #[test]
    fn a_value_counts_for_at_least_four_fifths_of_a_minute_and_at_most_a_minute() {
        for offset in 0..12 {
            let summary = Summary::new(at(0));
            summary.observe(7.0, at(offset), &MEDIAN);
            assert_eq!(median(&summary, offset + 48 - offset % 12 - 1), 7.0, "{offset}");
            assert_eq!(median(&summary, 59), 7.0);
            assert!(median(&summary, 60).is_nan(), "{offset}");
        }
    }

    #[test]
    fn the_window_forgets_old_values_and_keeps_new_ones() {
        let summary = Summary::new(at(0));
        for second in 0..200 {
            summary.observe(f64::from(u32::try_from(second).unwrap()), at(second), &MEDIAN);
            let median = median(&summary, second);
            let window = second.min(48)..=second.min(60);
            let age = second as f64 - median;
            assert!(
                (*window.start() as f64 / 2.0 - 1.0..=*window.end() as f64 / 2.0 + 1.0).contains(&age),
                "{age}"
            );
        }
        let read = summary.read(at(1_000), &MEDIAN);
        assert!(read.quantiles[0].1.is_nan());
        assert_eq!((read.count, read.sum), (200, 19_900.0));
    }
}
