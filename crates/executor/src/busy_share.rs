//! Which share of their time the instances of a model have run batches lately.
use std::time::Duration;

use inference::Timestamp;

/// Counts the time in windows of this length. The share is that of the last window and of what has passed of this one.
const WINDOW: Duration = Duration::from_secs(5);

const WINDOW_NANOS: u64 = WINDOW.as_nanos() as u64;

/// The share of time, as a value that is told the time and the numbers of instances. It costs the same whatever happened.
#[derive(Default)]
pub(super) struct BusyShare {
    /// Until when the time is counted.
    counted_until: Timestamp,
    /// The window that `counted_until` is in.
    window: InstanceTime,
    /// The window before it.
    window_before: InstanceTime,
}

/// Times of all instances together, in nanoseconds.
#[derive(Default, Clone, Copy)]
struct InstanceTime {
    /// With a batch.
    busy: u64,
    /// With a batch or without.
    all: u64,
}

impl InstanceTime {
    fn add(&mut self, nanos: u64, instances: BusyInstances) {
        let times = |count: usize| nanos.saturating_mul(count as u64);
        self.busy = self.busy.saturating_add(times(instances.busy));
        self.all = self.all.saturating_add(times(instances.all));
    }
}

/// How many instances there were during a time.
#[derive(Clone, Copy)]
pub(super) struct BusyInstances {
    /// Those that ran a batch.
    pub(super) busy: usize,
    /// All that were able to.
    pub(super) all: usize,
}

impl BusyShare {
    /// A share that counts from that time on.
    pub(super) fn from(at: Timestamp) -> Self {
        Self { counted_until: at, ..Self::default() }
    }

    /// Counts the time until `at`, in which there were so many instances.
    pub(super) fn count_until(&mut self, at: Timestamp, instances: BusyInstances) {
        let (from, until) = (self.counted_until.as_nanos(), at.as_nanos());
        // The clock of another processor may be behind.
        if until <= from {
            return;
        }
        self.counted_until = at;
        let (first, last) = (from / WINDOW_NANOS, until / WINDOW_NANOS);
        if first == last {
            self.window.add(until - from, instances);
            return;
        }
        self.window.add((first + 1) * WINDOW_NANOS - from, instances);
        self.window_before = self.window;
        if first + 1 < last {
            self.window_before = InstanceTime::default();
            self.window_before.add(WINDOW_NANOS, instances);
        }
        self.window = InstanceTime::default();
        self.window.add(until % WINDOW_NANOS, instances);
    }

    /// The share, from 0 to 1, of the last 5 to 10 seconds. `None` if there was no instance, or no time has passed.
    pub(super) fn share(&self) -> Option<f64> {
        let busy = self.window_before.busy + self.window.busy;
        let all = self.window_before.all + self.window.all;
        (all > 0).then(|| busy as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share after each of some times in milliseconds, with so many of two instances busy until then.
    fn shares(steps: &[(u64, usize)]) -> Vec<Option<f64>> {
        let mut share = BusyShare::from(Timestamp::from_nanos(0));
        let shares = steps.iter().map(|&(millis, busy)| {
            share.count_until(Timestamp::from_nanos(millis * 1_000_000), BusyInstances { busy, all: 2 });
            share.share()
        });
        shares.collect()
    }

    #[test]
    fn each_instance_counts_for_the_time_in_which_it_runs() {
        assert_eq!(shares(&[(0, 2)]), [None]);
        assert_eq!(shares(&[(1000, 2), (2000, 0)]), [Some(1.0), Some(0.5)]);
        assert_eq!(shares(&[(1000, 1), (1000, 2), (500, 2)]), [Some(0.5); 3], "no time has passed since");
    }

    #[test]
    fn only_the_last_two_windows_count() {
        // All of the first window and half of the second one.
        assert_eq!(shares(&[(5000, 2), (7500, 0)]), [Some(1.0), Some(2.0 / 3.0)]);
        // The third window is new, and the first one is forgotten.
        assert_eq!(shares(&[(5000, 2), (10_000, 0), (12_500, 1)]).last(), Some(&Some(1.0 / 6.0)));
    }

    #[test]
    fn a_long_time_without_events_counts_as_what_it_was() {
        assert_eq!(shares(&[(1000, 0), (61_000, 2)]), [Some(0.0), Some(1.0)]);
        assert_eq!(shares(&[(1000, 2), (8_000, 0)]), [Some(1.0), Some(0.125)]);
    }

    #[test]
    fn without_instances_there_is_no_share() {
        let mut share = BusyShare::from(Timestamp::from_nanos(5));
        share.count_until(Timestamp::from_nanos(10), BusyInstances { busy: 0, all: 0 });
        assert_eq!(share.share(), None);
    }
}
