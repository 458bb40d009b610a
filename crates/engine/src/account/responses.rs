//! Counters of the responses of decoupled requests, by the position of a response in its request.
//!
//! The module counts only responses that backends report. A stream may have any number of responses. Triton keeps
//! counters for every position. Nereid counts the first [`POSITIONS`] positions, and ignores reports of later
//! responses, because the statistics have no position for them.
use std::{collections::BTreeMap, time::Duration};

use inference::{DurationStatistic, ResponseReport, lock::Mutex};

/// The number of counted positions. They take less than a quarter of a megabyte for each model, and as much again while
/// they are shown.
const POSITIONS: u64 = 1024;

/// The responses at one position; 0 is the first response of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseStatistic {
    /// Position in the request.
    pub index: u64,
    /// Responses that were not cancelled: time until their outputs began, or until they were sent if they had none.
    pub compute_infer: DurationStatistic,
    /// Responses with outputs: time from the begin of the outputs until they were sent.
    pub compute_output: DurationStatistic,
    /// Successful responses with outputs: whole time.
    pub success: DurationStatistic,
    /// Failed responses: whole time.
    pub fail: DurationStatistic,
    /// Responses without outputs: whole time.
    pub empty_response: DurationStatistic,
    /// Responses that the backend gave up because their request was cancelled: whole time.
    pub cancel: DurationStatistic,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Responses {
    positions: Mutex<BTreeMap<u64, ResponseStatistic>>,
}

impl Responses {
    /// Counts a response at its position.
    pub(crate) fn count(&self, index: u64, report: ResponseReport) {
        if index < POSITIONS {
            let new = || ResponseStatistic { index, ..ResponseStatistic::default() };
            self.positions.lock().entry(index).or_insert_with(new).add(report);
        }
    }

    /// The counters by position.
    pub(crate) fn read(&self) -> Vec<ResponseStatistic> {
        self.positions.lock().values().copied().collect()
    }
}

impl ResponseStatistic {
    fn add(&mut self, report: ResponseReport) {
        match report {
            ResponseReport::Success { compute_infer, compute_output } => {
                self.compute_infer.add(compute_infer);
                self.compute_output.add(compute_output);
                self.success.add(compute_infer + compute_output);
            }
            ResponseReport::Failure { compute_infer, compute_output } => {
                self.compute_infer.add(compute_infer);
                if compute_output > Duration::ZERO {
                    self.compute_output.add(compute_output);
                }
                self.fail.add(compute_infer + compute_output);
            }
            ResponseReport::Empty { compute_infer } => {
                self.compute_infer.add(compute_infer);
                self.empty_response.add(compute_infer);
            }
            ResponseReport::Cancelled { after } => self.cancel.add(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    /// Counts and nanoseconds, in the order of the fields.
    fn numbers(read: &ResponseStatistic) -> [(u64, u64); 6] {
        let ResponseStatistic {
            index: _,
            compute_infer,
            compute_output,
            success,
            fail,
            empty_response,
            cancel,
        } = *read;
        [compute_infer, compute_output, success, fail, empty_response, cancel].map(|one| (one.count, one.ns))
    }

    #[test]
    fn each_kind_of_response_has_its_counters() {
        let none = (0, 0);
        for (report, expected) in [
            (
                ResponseReport::Success { compute_infer: ns(3), compute_output: ns(5) },
                [(1, 3), (1, 5), (1, 8), none, none, none],
            ),
            (
                ResponseReport::Failure { compute_infer: ns(3), compute_output: ns(5) },
                [(1, 3), (1, 5), none, (1, 8), none, none],
            ),
            (
                ResponseReport::Failure { compute_infer: ns(3), compute_output: ns(0) },
                [(1, 3), none, none, (1, 3), none, none],
            ),
            (ResponseReport::Empty { compute_infer: ns(3) }, [(1, 3), none, none, none, (1, 3), none]),
            (ResponseReport::Cancelled { after: ns(3) }, [none, none, none, none, none, (1, 3)]),
        ] {
            let responses = Responses::default();
            responses.count(0, report);
            assert_eq!(numbers(&responses.read()[0]), expected, "{report:?}");
        }
    }

    #[test]
    fn responses_of_the_same_position_are_added_up() {
        let responses = Responses::default();
        for index in [2, 0, 2] {
            responses.count(index, ResponseReport::Empty { compute_infer: ns(3) });
        }
        let read = responses.read();
        let counted: Vec<_> = read.iter().map(|one| (one.index, one.empty_response)).collect();
        let times = |count| DurationStatistic { count, ns: 3 * count };
        assert_eq!(counted, [(0, times(1)), (2, times(2))]);
    }

    #[test]
    fn an_endless_stream_fills_a_bounded_table() {
        let responses = Responses::default();
        for index in (0..2 * POSITIONS).chain([u64::MAX]) {
            responses.count(index, ResponseReport::Empty { compute_infer: ns(1) });
        }
        let read = responses.read();
        assert_eq!(read.len() as u64, POSITIONS);
        assert_eq!(read.last().map(|last| (last.index, last.empty_response.count)), Some((POSITIONS - 1, 1)));
    }
}
