//! When the store is asked, and when not because it is away. Pure policy: the caller passes the time, acts and logs.
//!
//! While the breaker is closed, operations go to the store. A lost connection, or a few operations in a row without a
//! reply in time, open it. Then no operation goes to the store, so no request waits. One probe at a time makes new
//! connections. The first probe that succeeds closes the breaker.
use std::time::Duration;

use inference::Timestamp;

/// So many operations in a row without a reply open the breaker.
const TIMEOUTS_IN_A_ROW: u32 = 3;
/// The time from the opening to the first probe. Each failed probe doubles the time to the next one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest time between two probes.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// If the store fails again within this time after its return, probes do not begin with the shortest delay.
const STABLE: Duration = Duration::from_secs(10);

/// Counts the connections. Failures of old connections say nothing about the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionGeneration(u64);

/// What has happened to an operation that the store did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionFailure {
    /// There was no reply within the limit.
    TimedOut,
    /// The connection has ended.
    Lost,
}

/// What the log must tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreChange {
    /// The store is away.
    Away,
    /// The store is back.
    Back,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    state: BreakerState,
    generation: u64,
    /// Operations without a reply since the last reply.
    timeouts: u32,
    /// The delay before the latest probe.
    delay: Duration,
    /// When the store has come back. `None`: it has not been away.
    returned: Option<Timestamp>,
}

#[derive(Debug)]
enum BreakerState {
    Closed,
    Open {
        probe_at: Timestamp,
        /// Whether the log knows that the store is away.
        is_reported: bool,
    },
    Probing {
        is_reported: bool,
    },
}

impl CircuitBreaker {
    /// The breaker of a store that is connected.
    pub(super) fn new() -> Self {
        Self {
            state: BreakerState::Closed,
            generation: 0,
            timeouts: 0,
            delay: Duration::ZERO,
            returned: None,
        }
    }

    /// Whether operations go to the store.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, BreakerState::Closed)
    }

    /// The connections that an operation may use now.
    pub(super) fn admit(&self) -> Option<ConnectionGeneration> {
        self.is_closed().then_some(ConnectionGeneration(self.generation))
    }

    /// The store has answered an operation.
    pub(super) fn succeeded(&mut self, generation: ConnectionGeneration) {
        if generation.0 == self.generation {
            self.timeouts = 0;
        }
    }

    /// An operation had no answer.
    pub(super) fn failed(
        &mut self,
        generation: ConnectionGeneration,
        failure: ConnectionFailure,
        now: Timestamp,
    ) -> Option<StoreChange> {
        if self.admit() != Some(generation) {
            return None;
        }
        match failure {
            ConnectionFailure::TimedOut => {
                self.timeouts += 1;
                if self.timeouts < TIMEOUTS_IN_A_ROW {
                    return None;
                }
                self.delay = self.delay_of_opening(now).unwrap_or(FIRST_DELAY);
                self.state = BreakerState::Open { probe_at: now + self.delay, is_reported: true };
                Some(StoreChange::Away)
            }
            // A store that is there may end a connection. Only a probe tells whether it is away.
            ConnectionFailure::Lost => {
                self.delay = self.delay_of_opening(now).unwrap_or(Duration::ZERO);
                self.state = BreakerState::Open { probe_at: now + self.delay, is_reported: false };
                None
            }
        }
    }

    /// A longer delay if the store was back only for a short time.
    fn delay_of_opening(&self, now: Timestamp) -> Option<Duration> {
        let returned = self.returned?;
        (now - returned < STABLE).then(|| self.longer_delay())
    }

    fn longer_delay(&self) -> Duration {
        (self.delay * 2).clamp(FIRST_DELAY, LONGEST_DELAY)
    }

    /// When the next probe must begin. `None` while the breaker is closed or a probe is under way.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        match self.state {
            BreakerState::Open { probe_at, .. } => Some(probe_at),
            BreakerState::Closed | BreakerState::Probing { .. } => None,
        }
    }

    /// Begins the probe that is due. Returns whether there is one.
    pub(super) fn begin_probe(&mut self, now: Timestamp) -> bool {
        match self.state {
            BreakerState::Open { probe_at, is_reported } if now >= probe_at => {
                self.state = BreakerState::Probing { is_reported };
                true
            }
            BreakerState::Open { .. } | BreakerState::Closed | BreakerState::Probing { .. } => false,
        }
    }

    /// The probe has ended. If it was successful, its connections are those of a new generation.
    pub(super) fn probed(&mut self, was_successful: bool, now: Timestamp) -> Option<StoreChange> {
        let BreakerState::Probing { is_reported } = self.state else { return None };
        if was_successful {
            self.state = BreakerState::Closed;
            self.generation += 1;
            self.timeouts = 0;
            self.returned = Some(now);
            return is_reported.then_some(StoreChange::Back);
        }
        self.delay = self.longer_delay();
        self.state = BreakerState::Open { probe_at: now + self.delay, is_reported: true };
        (!is_reported).then_some(StoreChange::Away)
    }
}

#[cfg(test)]
mod tests;
