//! What a run reports: the report of `perf_analyzer`, a table, CSV files, a plot, and a profile.

pub(crate) mod latency_csv;
pub(crate) mod plot;
pub(crate) mod profile;
mod server_text;
pub(crate) mod table;
pub(crate) mod text;

use std::time::Duration;

use crate::load::MeasuredPoint;

/// One point of the result.
pub(crate) struct ReportRow {
    pub(crate) callers: usize,
    pub(crate) connections: usize,
    /// The requested rate of an open loop, in requests per second.
    pub(crate) rate: Option<f64>,
    pub(crate) point: MeasuredPoint,
}

impl ReportRow {
    /// Valid responses.
    pub(crate) fn good(&self) -> u64 {
        self.point.measured.latencies.count()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.point.measured.failed()
    }

    /// What the point is called in a heading, and its number.
    pub(crate) fn point(&self) -> (&'static str, f64) {
        match self.rate {
            None => ("Concurrency", self.callers as f64),
            Some(rate) => ("Request Rate", rate),
        }
    }

    /// A time as a mean over all requests, in microseconds.
    fn per_request(&self, time: Duration) -> f64 {
        microseconds(time) / (self.good() + self.failed()).max(1) as f64
    }

    /// Processor time of the server per request, in microseconds.
    fn server(&self) -> Option<f64> {
        self.point.measured.server_time.map(|time| self.per_request(time))
    }

    /// Processor time of the generator per request, in microseconds.
    fn client(&self) -> f64 {
        self.per_request(self.point.measured.client_time)
    }
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A number as perf_analyzer writes it: with six significant digits, and no zeros at the end.
fn six_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".into();
    }
    let decimals = (5 - number.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! A result for the tests of the reports.

    use super::*;
    use crate::histogram::Histogram;
    use crate::load::Measured;
    use crate::options::{self, PerfOptions};

    /// Four callers with 1000 good requests of 250 us, and three bad ones, in two seconds.
    pub(crate) fn row() -> ReportRow {
        let mut latencies = Histogram::new();
        for _ in 0..1000 {
            latencies.record(Duration::from_micros(250));
        }
        let measured = Measured {
            latencies,
            completed: 1000,
            responses: 3000,
            errors: [("400 bad, \"really\"".to_owned(), 3)].into(),
            elapsed: Duration::from_secs(2),
            server_time: Some(Duration::from_micros(20_060)),
            client_time: Duration::from_micros(5015),
            send_time: Duration::from_millis(5),
            receive_time: Duration::from_millis(2),
            ..Measured::new()
        };
        let point = MeasuredPoint { measured, is_stable: true, windows: Vec::new(), boundaries: Vec::new() };
        ReportRow { callers: 4, connections: 2, rate: None, point }
    }

    pub(crate) fn options(line: &str) -> PerfOptions {
        options::parse(["perf"].into_iter().chain(line.split_whitespace()).map(Into::into)).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_significant_digits() {
        let written = [4.944_261, 12_345.678, 1_234_567.8, 0.012_345_678, 100.0, 0.0].map(six_digits);
        assert_eq!(written, ["4.94426", "12345.7", "1234568", "0.0123457", "100", "0"]);
    }
}
