//! What the handlers of a request learn about it, for the log and for the client.
use std::{fmt::Write, time::Duration};

use engine::Model;
use http::{HeaderMap, HeaderName, HeaderValue};
use inference::{ResponseStream, Timeline, lock::Mutex};
use vocabulary::Name;

/// The times of one inference. Phases that a request did not have are absent: a cached answer has no execution, and the
/// members of an ensemble have its executions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// From the queue to the execution.
    pub queue: Option<Duration>,
    /// In the execution, until its inputs were ready.
    pub compute_input: Option<Duration>,
    /// In the execution, until its outputs were computed.
    pub compute_infer: Option<Duration>,
    /// In the execution, until its outputs were sent.
    pub compute_output: Option<Duration>,
}

impl RequestTimes {
    /// The times of a request that has ended.
    pub(crate) fn of(timeline: &Timeline) -> Self {
        let Some(times) = timeline.counted_times() else { return Self::default() };
        Self {
            queue: Some(times.exec_start - timeline.queue_start()),
            compute_input: Some(times.input()),
            compute_infer: Some(times.infer()),
            compute_output: Some(times.output()),
        }
    }

    /// The whole execution.
    pub fn compute(&self) -> Option<Duration> {
        Some(self.compute_input? + self.compute_infer? + self.compute_output?)
    }
}

/// The facts of one request. Its handler writes them.
#[derive(Debug, Default)]
pub(crate) struct RequestFacts(Mutex<KnownFacts>);

/// What is known of a request.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownFacts {
    pub(crate) model: Name,
    pub(crate) version: Option<i64>,
    pub(crate) request_id: Name,
    /// The bytes that were read.
    pub(crate) request_bytes: Option<u64>,
    pub(crate) times: RequestTimes,
}

impl RequestFacts {
    pub(crate) fn set_model(&self, model: &Model) {
        let mut known = self.0.lock();
        known.model = model.name().clone();
        known.version = Some(model.version());
    }

    pub(crate) fn set_request_id(&self, id: &Name) {
        self.0.lock().request_id = id.clone();
    }

    pub(crate) fn set_request_bytes(&self, bytes: usize) {
        self.0.lock().request_bytes = Some(bytes as u64);
    }

    /// The request has ended.
    pub(crate) fn set_times(&self, responses: &ResponseStream) {
        let mut known = self.0.lock();
        known.times = RequestTimes::of(responses.timeline());
        known.version = responses.timeline().version.or(known.version);
    }

    pub(crate) fn read(&self) -> KnownFacts {
        self.0.lock().clone()
    }
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Whether the client asks for the times of its request: `Prefer: server-timing` (RFC 7240).
pub(crate) fn wants_timing(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|preference| {
        let name = preference.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("server-timing")
    })
}

/// The header, or trailer, with the times of a request that has ended. The durations are milliseconds, as the standard
/// of `Server-Timing` says.
pub(crate) fn timing(responses: &ResponseStream) -> (HeaderName, HeaderValue) {
    let timeline = responses.timeline();
    let RequestTimes { queue, compute_input, compute_infer, compute_output } = RequestTimes::of(timeline);
    let phases = [
        ("queue", queue),
        ("compute_input", compute_input),
        ("compute_infer", compute_infer),
        ("compute_output", compute_output),
        ("total", Some(host::now() - timeline.request_start)),
    ];
    (SERVER_TIMING, written(&phases))
}

fn written(phases: &[(&str, Option<Duration>)]) -> HeaderValue {
    let mut text = String::with_capacity(128);
    for (name, duration) in phases {
        let Some(duration) = duration else { continue };
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{name};dur={:.3}", duration.as_secs_f64() * 1e3);
    }
    HeaderValue::try_from(text).expect("names and numbers are printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_for_times_with_the_standard_header_for_preferences() {
        let wants = |value: &str| wants_timing(&HeaderMap::from_iter([(PREFER, value.parse().unwrap())]));
        assert!(wants("server-timing"));
        assert!(wants("wait=5, Server-Timing; a=b"));
        assert!(!wants("wait=5") && !wants("server-timings"));
        assert!(!wants_timing(&HeaderMap::new()));
    }

    #[test]
    fn times_are_milliseconds_and_absent_phases_are_left_out() {
        let phases = [
            ("queue", Some(Duration::from_nanos(1_234_567))),
            ("a", None),
            ("total", Some(Duration::from_secs(2))),
        ];
        assert_eq!(written(&phases), "queue;dur=1.235, total;dur=2000.000");
    }
}
