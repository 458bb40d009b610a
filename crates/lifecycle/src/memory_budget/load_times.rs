//! How long another load of a model is expected to take.
//!
//! The first load of a model takes longer than the later ones: its files are read from the disk, and what the server keeps
//! of them is not known yet. If that were not considered, models that were loaded once would be worth more than those that
//! were loaded twice, and would stay in their place. For the same reason the quickest load does not count, but a mean: the
//! quickest one of many loads is quicker than that of a few, and a model that goes would be worth less each time.
use std::time::Duration;

/// How long the loads of a model took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadTimes {
    first: Option<Duration>,
    /// The mean of the later ones, in seconds. The last ones weigh more.
    later_seconds: Option<f64>,
}

/// What a load counts in the mean of those before and itself.
const SHARE_OF_ONE_LOAD: f64 = 0.25;

impl LoadTimes {
    /// The model has been loaded once more.
    pub(super) fn add(&mut self, duration: Duration, repeated: &mut RepeatedLoads) {
        let seconds = duration.as_secs_f64();
        match (self.first, self.later_seconds) {
            (None, _) => self.first = Some(duration),
            (Some(first), None) => {
                repeated.add(first, duration);
                self.later_seconds = Some(seconds);
            }
            (_, Some(mean)) => self.later_seconds = Some(mean + (seconds - mean) * SHARE_OF_ONE_LOAD),
        }
    }

    /// How many seconds another load is expected to take.
    pub(super) fn expected_seconds(&self, repeated: &RepeatedLoads) -> f64 {
        let first = || self.first.unwrap_or_default().as_secs_f64() * repeated.factor();
        self.later_seconds.unwrap_or_else(first)
    }
}

/// How long the second loads of models took, compared with their first ones. Recent models weigh more.
#[derive(Debug, Default)]
pub(super) struct RepeatedLoads {
    first_seconds: f64,
    second_seconds: f64,
}

/// What stays of the weight of earlier models when another one is added.
const KEPT_WEIGHT: f64 = 15.0 / 16.0;

impl RepeatedLoads {
    fn add(&mut self, first: Duration, second: Duration) {
        self.first_seconds = self.first_seconds * KEPT_WEIGHT + first.as_secs_f64();
        self.second_seconds = self.second_seconds * KEPT_WEIGHT + second.as_secs_f64();
    }

    /// What a second load takes of the time of the first one, at most all of it. All of it if nothing is known.
    fn factor(&self) -> f64 {
        if self.second_seconds < self.first_seconds { self.second_seconds / self.first_seconds } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(60);
    const LATER: Duration = Duration::from_millis(20);

    fn assert_expected(times: &LoadTimes, repeated: &RepeatedLoads, seconds: f64) {
        let expected = times.expected_seconds(repeated);
        assert!((expected - seconds).abs() < 1e-9, "{expected} is not {seconds}");
    }

    #[test]
    fn the_second_load_of_a_model_is_expected_to_take_what_those_of_others_took() {
        let mut repeated = RepeatedLoads::default();
        let mut known = LoadTimes::default();
        known.add(FIRST, &mut repeated);
        assert_expected(&known, &repeated, 0.06);
        known.add(LATER, &mut repeated);
        assert_expected(&known, &repeated, 0.02);

        let mut other = LoadTimes::default();
        other.add(FIRST * 2, &mut repeated);
        assert_expected(&other, &repeated, 0.04);
    }

    #[test]
    fn later_loads_count_by_their_mean_and_not_by_the_quickest_one() {
        let mut repeated = RepeatedLoads::default();
        let mut times = LoadTimes::default();
        times.add(LATER, &mut repeated);
        times.add(FIRST, &mut repeated);
        assert_expected(&times, &repeated, 0.06);
        assert_eq!(repeated.factor(), 1.0);
        times.add(LATER, &mut repeated);
        assert_expected(&times, &repeated, 0.05);
        for _ in 0..60 {
            times.add(LATER, &mut repeated);
        }
        assert_expected(&times, &repeated, 0.02);
    }
}
