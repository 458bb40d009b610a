//! What was measured in a window, or in several windows together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::caller::AnsweredCall;
use crate::histogram::Histogram;
use crate::statistics::ServerStatistics;

/// See the module documentation.
pub(crate) struct Measured {
    /// The latencies of valid responses.
    pub(crate) latencies: Histogram,
    /// The valid responses that arrived in the time `elapsed`.
    pub(crate) completed: u64,
    /// Responses of streams, counted when they arrive.
    pub(crate) responses: u64,
    /// Times from a request to its first response, for streams.
    pub(crate) first_responses: Histogram,
    /// Times from a response to the next one of the same request, for streams.
    pub(crate) response_gaps: Histogram,
    /// How many times each error text occurred.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests of an open loop that were sent later than they were due, because all callers were busy.
    pub(crate) late: u64,
    /// Sequences whose last request has its response.
    pub(crate) sequences: u64,
    pub(crate) send_time: Duration,
    pub(crate) receive_time: Duration,
    pub(crate) elapsed: Duration,
    /// Processor time of the server. `None` if no process was named.
    pub(crate) server_time: Option<Duration>,
    pub(crate) client_time: Duration,
    /// `None` if the server has none.
    pub(crate) statistics: Option<ServerStatistics>,
    /// Each request, if the run keeps them.
    pub(crate) requests: Vec<RequestRecord>,
}

/// The times of one request.
pub(crate) struct RequestRecord {
    /// When it was sent, or due.
    pub(crate) start: Instant,
    pub(crate) responses: Vec<Instant>,
    pub(crate) sequence_id: Option<u64>,
}

/// The most different texts of errors that are counted apart.
const MOST_ERROR_TEXTS: usize = 100;
const OTHER_ERRORS: &str = "other errors";
/// The most requests of a window that are kept for the profile.
const MOST_RECORDS: usize = 5_000_000;

impl Measured {
    pub(crate) fn new() -> Measured {
        Measured {
            latencies: Histogram::new(),
            completed: 0,
            responses: 0,
            first_responses: Histogram::new(),
            response_gaps: Histogram::new(),
            errors: BTreeMap::new(),
            late: 0,
            sequences: 0,
            send_time: Duration::ZERO,
            receive_time: Duration::ZERO,
            elapsed: Duration::ZERO,
            server_time: None,
            client_time: Duration::ZERO,
            statistics: None,
            requests: Vec::new(),
        }
    }

    /// Counts an answer.
    pub(crate) fn count(&mut self, latency: Duration, answer: &Result<AnsweredCall, String>) {
        match answer {
            Ok(call) => {
                self.latencies.record(latency);
                self.sequences += u64::from(call.ends_sequence);
                self.send_time += call.times.send;
                self.receive_time += call.times.receive;
            }
            Err(text) => self.count_error(text, 1),
        }
    }

    /// Counts a number of equal errors.
    pub(crate) fn count_error(&mut self, text: &str, count: u64) {
        let known = self.errors.contains_key(text) || self.errors.len() < MOST_ERROR_TEXTS;
        let text = if known { text } else { OTHER_ERRORS };
        *self.errors.entry(text.to_owned()).or_default() += count;
    }

    /// Keeps the times of a request, if there is room.
    pub(crate) fn keep(&mut self, record: RequestRecord) {
        if self.requests.len() < MOST_RECORDS {
            self.requests.push(record);
        }
    }

    /// Adds another window.
    pub(crate) fn merge(&mut self, other: Measured) {
        self.latencies.merge(&other.latencies);
        self.completed += other.completed;
        self.responses += other.responses;
        self.first_responses.merge(&other.first_responses);
        self.response_gaps.merge(&other.response_gaps);
        other.errors.iter().for_each(|(text, count)| self.count_error(text, *count));
        self.late += other.late;
        self.sequences += other.sequences;
        self.send_time += other.send_time;
        self.receive_time += other.receive_time;
        self.elapsed += other.elapsed;
        self.server_time = match (self.server_time, other.server_time) {
            (Some(own), Some(other)) => Some(own + other),
            (None, None) | (Some(_), None) | (None, Some(_)) => None,
        };
        self.client_time += other.client_time;
        match (&mut self.statistics, &other.statistics) {
            (Some(own), Some(other)) => own.add(other),
            (own, _) => *own = None,
        }
        self.requests.extend(other.requests);
    }

    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Valid responses per second.
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Responses of streams per second.
    pub(crate) fn responses_per_second(&self) -> f64 {
        self.responses as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The latency that windows are compared by: a percentile, or the mean.
    pub(crate) fn stabilizing_latency(&self, percentile: Option<u8>) -> Duration {
        match percentile {
            Some(percentile) => self.latencies.quantile(f64::from(percentile) / 100.0),
            None => self.latencies.mean(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_errors_have_a_bound() {
        let mut measured = Measured::new();
        (0..300).for_each(|index| measured.count_error(&format!("error {index}"), 1));
        assert_eq!((measured.errors.len(), measured.failed()), (MOST_ERROR_TEXTS + 1, 300));
        assert_eq!(measured.errors[OTHER_ERRORS], 200);
    }

    #[test]
    fn windows_add_up() {
        let window = |server_time: Option<Duration>| {
            let mut measured = Measured::new();
            measured.latencies.record(Duration::from_micros(10));
            measured.completed = 4;
            measured.count_error("bad", 2);
            measured.elapsed = Duration::from_secs(2);
            measured.server_time = server_time;
            measured
        };
        let mut sum = window(Some(Duration::from_secs(1)));
        sum.merge(window(Some(Duration::from_secs(3))));
        assert_eq!((sum.completed, sum.failed(), sum.latencies.count()), (8, 4, 2));
        assert_eq!((sum.requests_per_second(), sum.server_time), (2.0, Some(Duration::from_secs(4))));
        sum.merge(window(None));
        assert_eq!(sum.server_time, None);
    }
}
