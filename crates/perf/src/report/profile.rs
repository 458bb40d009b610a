//! The JSON file of `--profile-export-file`: the times of each request, in the form of `perf_analyzer`.
//!
//! Times are nanoseconds since 1970. Contents of tensors are not in the file.

use std::io::{self, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::ReportRow;
use crate::load::RequestRecord;

/// Converts times of the monotonic clock to those of the calendar.
struct CalendarClock {
    now: Instant,
    nanoseconds: u64,
}

impl CalendarClock {
    fn new() -> CalendarClock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        CalendarClock {
            now: Instant::now(),
            nanoseconds: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        // All times are in the past.
        let ago = self.now.saturating_duration_since(time);
        self.nanoseconds.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Writes the file, request by request.
pub(crate) fn write(out: &mut dyn Write, rows: &[ReportRow]) -> io::Result<()> {
    let clock = CalendarClock::new();
    write!(out, r#"{{"experiments":["#)?;
    for (index, row) in rows.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let experiment = match row.rate {
            None => json!({"mode": "concurrency", "value": row.callers}),
            Some(rate) => json!({"mode": "request_rate", "value": rate}),
        };
        write!(out, r#"{comma}{{"experiment":{experiment},"requests":["#)?;
        for (index, record) in row.point.measured.requests.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{}", request(&clock, record))?;
        }
        let boundaries: Vec<u64> =
            row.point.boundaries.iter().map(|&boundary| clock.nanoseconds(boundary)).collect();
        write!(out, r#"],"window_boundaries":{}}}"#, json!(boundaries))?;
    }
    write!(out, r#"],"version":"{}","service_kind":"triton","endpoint":""}}"#, env!("CARGO_PKG_VERSION"))?;
    out.flush()
}

fn request(clock: &CalendarClock, record: &RequestRecord) -> serde_json::Value {
    let times = record.responses.iter().map(|&time| clock.nanoseconds(time));
    let mut request = json!({
        "timestamp": clock.nanoseconds(record.start),
        "response_timestamps": times.collect::<Vec<_>>(),
    });
    if let Some(id) = record.sequence_id {
        request["sequence_id"] = json!(id);
    }
    request
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::samples;

    #[test]
    fn each_request_has_its_times() {
        let mut row = samples::row();
        let start = Instant::now();
        let responses = vec![start + Duration::from_micros(5), start + Duration::from_micros(9)];
        row.point.measured.requests = vec![
            RequestRecord { start, responses, sequence_id: Some(3) },
            RequestRecord { start, responses: Vec::new(), sequence_id: None },
        ];
        row.point.boundaries = vec![start];
        let mut out = Vec::new();
        // Times of the future count as now.
        while start.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
        write(&mut out, &[row]).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let experiment = &written["experiments"][0];
        assert_eq!(experiment["experiment"], json!({"mode": "concurrency", "value": 4}));
        let request = &experiment["requests"][0];
        let time = |value: &serde_json::Value| value.as_u64().unwrap();
        let start = time(&request["timestamp"]);
        assert_eq!(time(&request["response_timestamps"][0]) - start, 5_000);
        assert_eq!(time(&request["response_timestamps"][1]) - start, 9_000);
        assert_eq!((&request["sequence_id"], time(&experiment["window_boundaries"][0])), (&json!(3), start));
        assert!(experiment["requests"][1].get("sequence_id").is_none());
    }
}
