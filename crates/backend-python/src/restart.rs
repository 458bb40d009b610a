//! When a worker that has ended is started again. Pure: times are arguments.
use std::time::Duration;

/// The pauses before the first starts after an end: at most five starts in a minute.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
    Duration::from_secs(60),
];

/// A worker that ran for so long has no part in an earlier series of failures.
const STABLE_TIME: Duration = Duration::from_secs(60);

/// Counts how often a worker has ended lately.
#[derive(Debug, Default)]
pub(crate) struct RestartPolicy {
    failures: usize,
}

impl RestartPolicy {
    /// The worker has ended after it ran for `lifetime`, zero if it never became ready. Returns the pause before the next
    /// start.
    pub(crate) fn ended_after(&mut self, lifetime: Duration) -> Duration {
        if lifetime >= STABLE_TIME {
            self.failures = 0;
        }
        let pause = PAUSES[self.failures.min(PAUSES.len() - 1)];
        self.failures += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_worker_runs_for_a_minute() {
        let mut policy = RestartPolicy::default();
        let mut pause = |lifetime| policy.ended_after(Duration::from_secs(lifetime)).as_secs();
        assert_eq!([0, 1, 2, 0, 0, 59].map(&mut pause), [0, 1, 4, 16, 60, 60]);
        assert_eq!([60, 0].map(&mut pause), [0, 1]);
    }
}
