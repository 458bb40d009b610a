//! What a replay has found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::comparison::AnswerVerdict;
use super::player::PlayedCall;
use super::recorded_call::RecordedCall;

/// The differences that the text shows.
const SHOWN: usize = 10;
/// The differences that the JSON has.
const KEPT: usize = 1000;
/// A call that is sent later than this was late.
const LATE: Duration = Duration::from_millis(1);

/// The result of a replay.
pub(crate) struct ReplayReport {
    pub(crate) answered: usize,
    pub(crate) same: usize,
    pub(crate) different: usize,
    pub(crate) failed: usize,
    /// Calls that were not sent: the recording does not have their bodies, or they change the server.
    pub(crate) not_sent: usize,
    late: usize,
    waited: usize,
    /// How much later than due calls were sent.
    delays: DurationList,
    /// How much gaps between calls differ from those of the recording.
    gap_errors: DurationList,
    elapsed: Duration,
    operations: BTreeMap<(String, String), OperationLatencies>,
    /// Number, name, and what differs or failed.
    differences: Vec<(u64, String, String)>,
}

/// The latencies of the calls of an operation of a model.
#[derive(Default)]
struct OperationLatencies {
    recorded: DurationList,
    replayed: DurationList,
}

/// Durations, of which percentiles are asked.
#[derive(Default)]
struct DurationList(Vec<Duration>);

impl DurationList {
    /// In milliseconds. `None` without durations.
    fn percentile(&self, percent: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place =
            ((sorted.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(place).map(|duration| duration.as_secs_f64() * 1000.0)
    }
}

impl ReplayReport {
    /// `played` may have any order. `speed` is how much faster than recorded.
    pub(crate) fn new(
        calls: &[RecordedCall],
        mut played: Vec<PlayedCall>,
        not_sent: usize,
        speed: f64,
    ) -> ReplayReport {
        played.sort_by_key(|call| call.place);
        let mut report = ReplayReport {
            answered: 0,
            same: 0,
            different: 0,
            failed: 0,
            not_sent,
            late: 0,
            waited: 0,
            delays: DurationList::default(),
            gap_errors: gap_errors(calls, &played, speed),
            elapsed: Duration::ZERO,
            operations: BTreeMap::new(),
            differences: Vec::new(),
        };
        for call in &played {
            report.add(&calls[call.place], call);
        }
        report
    }

    fn add(&mut self, recorded: &RecordedCall, played: &PlayedCall) {
        let target = &recorded.target;
        let delay = played.sent.saturating_sub(played.due);
        self.delays.0.push(delay);
        self.late += usize::from(delay > LATE);
        self.waited += usize::from(played.waited);
        self.elapsed = self.elapsed.max(played.due + played.latency);
        let latencies = self.operations.entry((target.model.clone(), target.operation.clone())).or_default();
        if let Some(answer) = &recorded.answer {
            latencies.recorded.0.push(answer.at.saturating_sub(recorded.at));
        }
        let difference = match &played.verdict {
            Ok(verdict) => {
                self.answered += 1;
                latencies.replayed.0.push(played.latency);
                match verdict {
                    AnswerVerdict::Same => self.same += 1,
                    AnswerVerdict::NotRecorded => {}
                    AnswerVerdict::Different(text) => {
                        self.different += 1;
                        self.note(recorded, text);
                    }
                }
                return;
            }
            Err(error) => error,
        };
        self.failed += 1;
        self.note(recorded, difference);
    }

    fn note(&mut self, recorded: &RecordedCall, text: &str) {
        if self.differences.len() < KEPT {
            self.differences.push((recorded.number, name(recorded), text.to_owned()));
        }
    }

    /// For people.
    pub(crate) fn text(&self, server: &str) -> String {
        let mut text = String::new();
        self.write_text(&mut text, server).expect("writing to a text does not fail");
        text
    }

    fn write_text(&self, out: &mut String, server: &str) -> std::fmt::Result {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let sent = self.answered + self.failed;
        writeln!(out, "Sent {sent} calls to {server} in {:.3} s", self.elapsed.as_secs_f64())?;
        writeln!(
            out,
            "  answered {}: as recorded {}, different {}, not compared {}",
            self.answered,
            self.same,
            self.different,
            self.answered - self.same - self.different
        )?;
        writeln!(out, "  without an answer {}, not sent {}", self.failed, self.not_sent)?;
        writeln!(
            out,
            "  sent later than due: p50 {} ms, p99 {} ms; over 1 ms: {}; after an answer of their sequence: {}",
            ms(self.delays.percentile(50.0)),
            ms(self.delays.percentile(99.0)),
            self.late,
            self.waited
        )?;
        writeln!(
            out,
            "  times between calls differ from those of the recording: p50 {} ms, p99 {} ms",
            ms(self.gap_errors.percentile(50.0)),
            ms(self.gap_errors.percentile(99.0))
        )?;
        let width = self.operations.keys().map(|key| row_name(key).chars().count()).max().unwrap_or(0).max(4);
        writeln!(
            out,
            "\n{:width$} {:>8} {:>14} {:>14} {:>14} {:>14}",
            "Call", "answers", "recorded p50", "p99 (ms)", "replayed p50", "p99 (ms)"
        )?;
        for (key, OperationLatencies { recorded, replayed }) in &self.operations {
            writeln!(
                out,
                "{:width$} {:>8} {:>14} {:>14} {:>14} {:>14}",
                row_name(key),
                replayed.0.len(),
                ms(recorded.percentile(50.0)),
                ms(recorded.percentile(99.0)),
                ms(replayed.percentile(50.0)),
                ms(replayed.percentile(99.0))
            )?;
        }
        if !self.differences.is_empty() {
            writeln!(out)?;
        }
        for (number, name, difference) in self.differences.iter().take(SHOWN) {
            writeln!(out, "call {number}, {name}: {difference}")?;
        }
        let more = (self.different + self.failed).saturating_sub(SHOWN);
        if more > 0 {
            writeln!(out, "and {more} more")?;
        }
        Ok(())
    }

    /// For programs. Times are in milliseconds.
    pub(crate) fn json(&self) -> Value {
        let percentiles = |list: &DurationList| {
            json!({
                "count": list.0.len(),
                "p50": list.percentile(50.0),
                "p90": list.percentile(90.0),
                "p99": list.percentile(99.0),
                "max": list.percentile(100.0),
            })
        };
        let operation = |((model, operation), latencies): (&(String, String), &OperationLatencies)| {
            json!({
                "model": model,
                "operation": operation,
                "recorded_ms": percentiles(&latencies.recorded),
                "replayed_ms": percentiles(&latencies.replayed),
            })
        };
        let difference = |(number, name, difference): &(u64, String, String)| json!({ "call": number, "name": name, "difference": difference });
        json!({
            "answered": self.answered,
            "same": self.same,
            "different": self.different,
            "failed": self.failed,
            "not_sent": self.not_sent,
            "late": self.late,
            "waited_for_sequence": self.waited,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "sent_later_ms": percentiles(&self.delays),
            "gap_error_ms": percentiles(&self.gap_errors),
            "operations": self.operations.iter().map(operation).collect::<Vec<_>>(),
            "differences": self.differences.iter().map(difference).collect::<Vec<_>>(),
        })
    }
}

/// How a call is called.
fn name(call: &RecordedCall) -> String {
    row_name(&(call.target.model.clone(), call.target.operation.clone()))
}

fn row_name((model, operation): &(String, String)) -> String {
    match model.as_str() {
        "" => operation.clone(),
        model => format!("{model} {operation}"),
    }
}

/// How much the gap before each call differs from the recorded one. Calls that waited for an answer are left out.
fn gap_errors(calls: &[RecordedCall], played: &[PlayedCall], speed: f64) -> DurationList {
    let pairs = played.windows(2).filter(|pair| !pair.iter().any(|call| call.waited));
    let errors = pairs.map(|pair| {
        let wanted = (calls[pair[1].place].at - calls[pair[0].place].at).as_secs_f64() / speed;
        let gap = pair[1].sent.as_secs_f64() - pair[0].sent.as_secs_f64();
        Duration::try_from_secs_f64((gap - wanted).abs()).unwrap_or(Duration::MAX)
    });
    DurationList(errors.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let list = DurationList([4, 1, 3, 2].map(Duration::from_millis).to_vec());
        assert_eq!(
            [50.0, 99.0, 1.0].map(|percent| list.percentile(percent)),
            [Some(2.0), Some(4.0), Some(1.0)]
        );
        assert_eq!(DurationList::default().percentile(50.0), None);
    }
}
