//! How long another load of a model is expected to take.
//!
//! The first load reads the files from the disk and examines them; later loads use what the server has kept of that. So
//! the expected time is the mean of the later loads. For a model that was loaded once, it is the time of the first
//! load, multiplied by what second loads of other models took of their first ones. The minimum is not used: it falls
//! with the number of loads, and a model that is often unloaded would be worth less each time.
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
        let first = || self.first.unwrap_or_default().as_secs_f64() * repeated.share();
        self.later_seconds.unwrap_or_else(first)
    }
}

/// What second loads of models took of the time of their first ones, as a mean over the models. The last ones weigh
/// more.
#[derive(Debug, Default)]
pub(super) struct RepeatedLoads {
    /// The sum of the shares, and how many they count as.
    shares: f64,
    weight: f64,
}

/// What stays of the weight of earlier models when another one is added.
const KEPT_WEIGHT: f64 = 15.0 / 16.0;

impl RepeatedLoads {
    /// A model was loaded for the second time. A second load that takes longer does so because of the rest of the
    /// machine.
    fn add(&mut self, first: Duration, second: Duration) {
        let share = if second < first { second.as_secs_f64() / first.as_secs_f64() } else { 1.0 };
        self.shares = self.shares * KEPT_WEIGHT + share;
        self.weight = self.weight * KEPT_WEIGHT + 1.0;
    }

    /// All of it if nothing is known.
    fn share(&self) -> f64 {
        if self.weight > 0.0 { self.shares / self.weight } else { 1.0 }
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
    fn second_loads_are_expected_to_take_the_share_of_the_first_that_those_of_others_took() {
        let mut repeated = RepeatedLoads::default();
        let mut slow = LoadTimes::default();
        slow.add(FIRST * 1000, &mut repeated);
        assert_expected(&slow, &repeated, 60.0);
        slow.add(FIRST * 1000, &mut repeated);
        assert_expected(&slow, &repeated, 60.0);

        // Models count equally, however long their loads take.
        for _ in 0..200 {
            let mut quick = LoadTimes::default();
            quick.add(FIRST, &mut repeated);
            quick.add(LATER, &mut repeated);
            assert_expected(&quick, &repeated, 0.02);
        }
        let mut other = LoadTimes::default();
        other.add(FIRST * 2, &mut repeated);
        assert!((other.expected_seconds(&repeated) - 0.04).abs() < 1e-4);
    }

    #[test]
    fn later_loads_count_by_their_mean_and_not_by_the_quickest_one() {
        let mut repeated = RepeatedLoads::default();
        let mut times = LoadTimes::default();
        times.add(LATER, &mut repeated);
        times.add(FIRST, &mut repeated);
        assert_expected(&times, &repeated, 0.06);
        assert_eq!(repeated.share(), 1.0);
        times.add(LATER, &mut repeated);
        assert_expected(&times, &repeated, 0.05);
        for _ in 0..60 {
            times.add(LATER, &mut repeated);
        }
        assert_expected(&times, &repeated, 0.02);
    }
}
