//! How long the executions of a model take, as far as it decides which thread runs the next one.

use std::time::Duration;

/// A cautious estimate of the duration of the next execution. Two long executions in a row, or long executions that
/// occur again and again, raise it at once. It falls slowly.
#[derive(Default)]
pub(super) struct ExecutionCost {
    guess_nanos: u64,
    last_nanos: u64,
    measured: u32,
    /// Rises with each execution that is not brief, falls with each brief one.
    suspicion: u32,
    /// The mean time of one request of the last executions.
    request_nanos: Option<u64>,
}

impl ExecutionCost {
    /// A brief execution takes less time than handing it to another thread and back.
    const BRIEF_NANOS: u64 = 50_000;
    /// The first executions of a model are not typical.
    const ENOUGH: u32 = 8;
    /// One execution that is not brief has the weight of so many brief ones.
    const LONG_WEIGHT: u32 = 16;
    /// Three long executions among few cannot be accidents.
    const SUSPICIOUS: u32 = 3 * Self::LONG_WEIGHT - 8;

    /// An execution of `requests` requests, at least one, has taken so many nanoseconds.
    pub(super) fn note(&mut self, nanos: u64, requests: usize) {
        let each = nanos / requests.max(1) as u64;
        // An eighth of each execution: about the last ten decide.
        self.request_nanos = Some(self.request_nanos.map_or(each, |mean| mean - mean / 8 + each / 8));
        // A single long execution usually means that the thread was preempted. It is no property of the model.
        let believed = nanos.min(self.last_nanos);
        self.last_nanos = nanos;
        self.guess_nanos = believed.max(self.guess_nanos - self.guess_nanos / 16);
        self.measured = self.measured.saturating_add(1);
        self.suspicion = if nanos > Self::BRIEF_NANOS {
            (self.suspicion + Self::LONG_WEIGHT).min(2 * Self::SUSPICIOUS)
        } else {
            self.suspicion.saturating_sub(1)
        };
    }

    /// The expected time of `requests` requests, if each runs as the last ones did. `None` before the first execution.
    pub(super) fn time_of(&self, requests: usize) -> Option<Duration> {
        let nanos = self.request_nanos?.saturating_mul(requests as u64);
        Some(Duration::from_nanos(nanos))
    }

    /// Whether the next execution is expected to be brief.
    pub(super) fn is_brief(&self) -> bool {
        self.measured >= Self::ENOUGH
            && self.guess_nanos <= Self::BRIEF_NANOS
            && self.suspicion < Self::SUSPICIOUS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(executions: &[u64]) -> bool {
        let mut cost = ExecutionCost::default();
        executions.iter().for_each(|&nanos| cost.note(nanos, 1));
        cost.is_brief()
    }

    #[test]
    fn a_model_is_brief_once_enough_executions_were_short() {
        assert!(!after(&[1_000; 7]));
        assert!(after(&[1_000; 8]));
        assert!(!after(&[1_000_000; 8]));
    }

    #[test]
    fn waiting_requests_take_as_long_as_the_last_ones_did() {
        let mut cost = ExecutionCost::default();
        assert_eq!(cost.time_of(5), None);
        cost.note(8_000, 4);
        assert_eq!(cost.time_of(5), Some(Duration::from_nanos(10_000)));
        (0..100).for_each(|_| cost.note(8_000, 1));
        let time = cost.time_of(5).unwrap().as_nanos();
        assert!((39_000..=40_000).contains(&time), "{time}");
    }

    #[test]
    fn one_long_execution_is_ignored_and_two_in_a_row_count() {
        let mut executions = vec![1_000; 8];
        executions.push(5_000_000);
        assert!(after(&executions));
        executions.push(5_000_000);
        assert!(!after(&executions));
        executions.extend([1_000; 100]);
        assert!(after(&executions));
    }

    #[test]
    fn a_model_whose_every_second_execution_is_long_is_not_brief() {
        assert!(!after(&[1_000, 5_000_000].repeat(20)));
        assert!(!after(&[5_000_000, 1_000].repeat(20)));
        // On a busy machine, about one execution in a hundred is long because its thread is preempted.
        let rare: Vec<_> = [1_000; 99].into_iter().chain([5_000_000]).collect();
        assert!(after(&rare.repeat(5)));
    }
}
