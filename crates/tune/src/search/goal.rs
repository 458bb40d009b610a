//! What is best: a rule over throughput and latency.

/// What the search looks for. Latencies are in milliseconds, of the percentile that the caller has chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TuningGoal {
    /// The highest throughput whose latency is not above the limit.
    Latency(f64),
    /// The lowest latency whose throughput is not below the limit, in requests per second.
    Throughput(f64),
    /// The knee: the largest throughput / latency^[`KNEE_EXPONENT`].
    Knee,
}

/// A latency that is twice as long must bring this power of two more throughput: 19 %.
pub const KNEE_EXPONENT: f64 = 0.25;

/// Throughput and latency as natural logarithms, with their standard deviations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The logarithm of the requests per second.
    pub rate: f64,
    /// Its standard deviation.
    pub rate_sd: f64,
    /// The logarithm of the milliseconds.
    pub latency: f64,
    /// Its standard deviation.
    pub latency_sd: f64,
}

impl TuningGoal {
    /// What is to be large, and its standard deviation. A difference of 0.01 is one percent.
    #[must_use]
    pub fn worth(self, of: &Estimate) -> (f64, f64) {
        match self {
            TuningGoal::Latency(_) => (of.rate, of.rate_sd),
            TuningGoal::Throughput(_) => (-of.latency, of.latency_sd),
            TuningGoal::Knee => (
                of.rate - KNEE_EXPONENT * of.latency,
                (of.rate_sd.powi(2) + (KNEE_EXPONENT * of.latency_sd).powi(2)).sqrt(),
            ),
        }
    }

    /// By how much the limit is kept, and the standard deviation. Not below zero: it is kept. `None`: there is no limit.
    #[must_use]
    pub fn margin(self, of: &Estimate) -> Option<(f64, f64)> {
        match self {
            TuningGoal::Latency(most) => Some((most.ln() - of.latency, of.latency_sd)),
            TuningGoal::Throughput(least) => Some((of.rate - least.ln(), of.rate_sd)),
            TuningGoal::Knee => None,
        }
    }

    /// Whether the means keep the limit.
    #[must_use]
    pub fn is_kept(self, of: &Estimate) -> bool {
        self.margin(of).is_none_or(|(margin, _)| margin >= 0.0)
    }

    /// A number to order by: what keeps the limit by its worth, then the rest by how little is missing.
    #[must_use]
    pub fn rank(self, of: &Estimate) -> f64 {
        match self.margin(of) {
            Some((margin, _)) if margin < 0.0 => MISSED + margin,
            _ => self.worth(of).0,
        }
    }

    /// As [`TuningGoal::rank`], but a limit that is missed by less than one standard deviation counts as kept: another
    /// measurement may show that it is.
    #[must_use]
    pub fn hopeful_rank(self, of: &Estimate) -> f64 {
        match self.margin(of) {
            Some((margin, sd)) if margin < 0.0 && margin + sd >= 0.0 => self.worth(of).0,
            _ => self.rank(of),
        }
    }
}

/// Below the worth of everything that keeps the limit. The logarithm of a rate or of a latency is far above it.
const MISSED: f64 = -1e3;

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(rate: f64, latency: f64) -> Estimate {
        Estimate { rate: rate.ln(), rate_sd: 0.1, latency: latency.ln(), latency_sd: 0.2 }
    }

    #[test]
    fn a_latency_above_the_limit_never_wins() {
        let goal = TuningGoal::Latency(10.0);
        assert!(goal.is_kept(&estimate(5.0, 9.9)) && !goal.is_kept(&estimate(5.0, 10.1)));
        assert!(goal.rank(&estimate(5.0, 9.9)) > goal.rank(&estimate(5000.0, 10.1)));
        assert!(goal.rank(&estimate(5.0, 11.0)) > goal.rank(&estimate(5.0, 20.0)));
        assert!(goal.rank(&estimate(50.0, 9.9)) > goal.rank(&estimate(40.0, 1.0)));
    }

    #[test]
    fn a_throughput_below_the_limit_never_wins() {
        let goal = TuningGoal::Throughput(100.0);
        assert!(goal.rank(&estimate(100.1, 50.0)) > goal.rank(&estimate(99.0, 1.0)));
        assert!(goal.rank(&estimate(200.0, 5.0)) > goal.rank(&estimate(400.0, 6.0)));
    }

    #[test]
    fn at_the_knee_twice_the_latency_must_bring_19_percent() {
        let goal = TuningGoal::Knee;
        assert!(goal.rank(&estimate(118.0, 2.0)) < goal.rank(&estimate(100.0, 1.0)));
        assert!(goal.rank(&estimate(120.0, 2.0)) > goal.rank(&estimate(100.0, 1.0)));
        assert!(goal.is_kept(&estimate(1.0, 1e6)));
    }
}
