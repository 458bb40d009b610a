//! How uses lose weight with time, without a change of the weights that were given before.
//!
//! A use weighs twice as much as one that is a half-life older. So what is compared are sums of weights that were fixed when
//! the uses happened.
use std::time::Duration;

use scheduling::Timestamp;

/// A use of a model counts half after this time.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Weights do not grow beyond two to the power of this.
const MOST_HALF_LIVES: f64 = 500.0;

/// Weighs uses by their times.
#[derive(Debug, Default)]
pub(super) struct UseClock {
    /// A use at this time weighs 1.
    epoch: Timestamp,
}

impl UseClock {
    /// The weight of a use at this time.
    pub(super) fn weight(&self, now: Timestamp) -> f64 {
        self.half_lives(now).exp2()
    }

    /// If weights have become large, they begin at 1 again. Returns the factor for the weights that were given before.
    pub(super) fn advance(&mut self, now: Timestamp) -> Option<f64> {
        let half_lives = self.half_lives(now);
        (half_lives > MOST_HALF_LIVES).then(|| {
            self.epoch = now;
            (-half_lives).exp2()
        })
    }

    fn half_lives(&self, now: Timestamp) -> f64 {
        (now - self.epoch).as_secs_f64() / HALF_LIFE.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_weighs_half_of_one_that_is_a_half_life_younger() {
        let mut clock = UseClock::default();
        let at = |half_lives: u32| Timestamp::from_nanos(0) + HALF_LIFE * half_lives;
        assert_eq!(clock.weight(at(3)), 2.0 * clock.weight(at(2)));
        assert_eq!(clock.advance(at(500)), None);
        let (old, factor) = (clock.weight(at(501)), clock.advance(at(501)).unwrap());
        assert_eq!((old * factor, clock.weight(at(501))), (1.0, 1.0));
    }
}
