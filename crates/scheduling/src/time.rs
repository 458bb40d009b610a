//! Times of the machine's monotonic clock, as plain numbers.
//!
//! Policies never read a clock: the caller passes the current time. `std::time::Instant` is not suitable, because
//! backends outside this program report raw nanoseconds, and tests choose their own times.
use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// The nanoseconds of a duration, at most `u64::MAX`.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A time of the monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds since its unspecified start.
///
/// Invariant: none; every value is a time. Arithmetic saturates, so that a time in the far future stays there.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The smallest step of this clock.
    pub const TICK: Duration = Duration::from_nanos(1);

    /// The time at which the clock shows `nanos`.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The value of the clock, in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// The time `later` after this one, or the last possible time.
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    /// The time since `earlier`, or zero if `earlier` is not earlier.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Timestamp({:?})", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_and_durations_add_up() {
        let start = Timestamp::from_nanos(1_000);
        assert_eq!(start + Duration::from_micros(2), Timestamp::from_nanos(3_000));
        assert_eq!(Timestamp::from_nanos(3_000) - start, Duration::from_micros(2));
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        let end = Timestamp::from_nanos(u64::MAX);
        assert_eq!(Timestamp::from_nanos(1) + Duration::MAX, end);
        assert_eq!(end + Timestamp::TICK, end);
        assert_eq!(Timestamp::from_nanos(1) - end, Duration::ZERO);
    }

    #[test]
    fn debugging_shows_a_readable_time() {
        assert_eq!(format!("{:?}", Timestamp::from_nanos(1_500_000)), "Timestamp(1.5ms)");
    }
}
