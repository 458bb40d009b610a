//! Writes the rows as a table for people and as CSV for programs.

use std::io::{self, Write};

use crate::load::Measured;
use crate::options::{PerfOptions, Protocol};

/// One row of the result.
pub(crate) struct ReportRow {
    pub(crate) callers: usize,
    pub(crate) connections: usize,
    /// The requested rate of an open loop, in requests per second.
    pub(crate) rate: Option<f64>,
    pub(crate) measured: Measured,
}

impl ReportRow {
    fn good(&self) -> u64 {
        self.measured.latencies.count()
    }

    fn failed(&self) -> u64 {
        self.measured.errors.values().sum()
    }

    fn requests_per_second(&self) -> f64 {
        self.good() as f64 / self.measured.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn per_request(&self, time: std::time::Duration) -> f64 {
        microseconds(time) / (self.good() + self.failed()).max(1) as f64
    }

    /// Latencies in microseconds: p50, p90, p99 and p99.9.
    fn quantiles(&self) -> [f64; 4] {
        [0.5, 0.9, 0.99, 0.999].map(|quantile| microseconds(self.measured.latencies.quantile(quantile)))
    }

    /// Responses per second, and the times to the first response in microseconds: p50 and p99.
    fn streaming(&self) -> [f64; STREAMING.len()] {
        let Measured { responses, first_responses, elapsed, .. } = &self.measured;
        let rate = *responses as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let [p50, p99] = [0.5, 0.99].map(|quantile| microseconds(first_responses.quantile(quantile)));
        [rate, p50, p99]
    }

    fn server(&self) -> Option<f64> {
        self.measured.server_time.map(|time| self.per_request(time))
    }
}

fn microseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

const HEADINGS: [&str; 11] =
    ["callers", "rate", "req/s", "infer/s", "p50", "p90", "p99", "p99.9", "server", "client", "errors"];
/// The columns for streams. They follow the other columns.
const STREAMING: [&str; 3] = ["resp/s", "first50", "first99"];

/// Writes the headings of the rows.
pub(crate) fn write_headings(out: &mut dyn Write, options: &PerfOptions) -> io::Result<()> {
    let protocol = name(options.protocol);
    let PerfOptions { model, address, batch, .. } = options;
    writeln!(out, "model '{model}' at {address}, {protocol}, batch {batch}; times in microseconds")?;
    let headings = HEADINGS.iter().chain(STREAMING.iter().filter(|_| options.streaming));
    write_cells(out, headings.map(|heading| (*heading).to_owned()))
}

/// Writes a row, and its errors below it.
pub(crate) fn write_row(out: &mut dyn Write, row: &ReportRow, options: &PerfOptions) -> io::Result<()> {
    let [p50, p90, p99, p999] = row.quantiles().map(short);
    let cells = [
        row.callers.to_string(),
        row.rate.map_or("closed".into(), short),
        short(row.requests_per_second()),
        short(row.requests_per_second() * options.batch as f64),
        p50,
        p90,
        p99,
        p999,
        row.server().map_or("-".into(), short),
        short(row.per_request(row.measured.client_time)),
        row.failed().to_string(),
    ];
    let streaming = row.streaming().map(short);
    write_cells(out, cells.into_iter().chain(streaming.into_iter().filter(|_| options.streaming)))?;
    for (text, count) in &row.measured.errors {
        writeln!(out, "    {count} times: {text}")?;
    }
    out.flush()
}

fn write_cells(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    let line: String = cells.map(|cell| format!("{cell:>9}")).collect();
    writeln!(out, "{line}")
}

/// A number with at least three significant digits.
fn short(number: f64) -> String {
    match number {
        0.0..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// Writes all rows as CSV with a line of headings.
pub(crate) fn write_csv(out: &mut dyn Write, options: &PerfOptions, rows: &[ReportRow]) -> io::Result<()> {
    writeln!(
        out,
        "protocol,model,batch,callers,connections,request_rate,requests,errors,seconds,requests_per_second,\
         inferences_per_second,mean_us,p50_us,p90_us,p99_us,p999_us,max_us,server_us_per_request,\
         client_us_per_request,responses_per_second,first_p50_us,first_p99_us"
    )?;
    for row in rows {
        let Measured { latencies, elapsed, client_time, .. } = &row.measured;
        let [p50, p90, p99, p999] = row.quantiles();
        let [responses, first50, first99] = row.streaming();
        let optional = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{:.3},{:.2},{:.2},{:.2},{p50:.2},{p90:.2},{p99:.2},{p999:.2},{:.2},{},{:.2},\
             {responses:.2},{first50:.2},{first99:.2}",
            name(options.protocol),
            quoted(&options.model),
            options.batch,
            row.callers,
            row.connections,
            optional(row.rate),
            row.good(),
            row.failed(),
            elapsed.as_secs_f64(),
            row.requests_per_second(),
            row.requests_per_second() * options.batch as f64,
            microseconds(latencies.mean()),
            microseconds(latencies.max()),
            optional(row.server()),
            row.per_request(*client_time),
        )?;
    }
    out.flush()
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::HttpJson => "http-json",
        Protocol::HttpBinary => "http-binary",
        Protocol::Grpc => "grpc",
    }
}

/// A CSV field. It has quotes only if it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::histogram::Histogram;
    use crate::options;

    fn row() -> ReportRow {
        let mut latencies = Histogram::new();
        for _ in 0..1000 {
            latencies.record(Duration::from_micros(250));
        }
        let measured = Measured {
            latencies,
            responses: 3000,
            first_responses: Histogram::new(),
            errors: [("400 bad, \"really\"".to_owned(), 3)].into(),
            elapsed: Duration::from_secs(2),
            server_time: Some(Duration::from_micros(20_060)),
            client_time: Duration::from_micros(5015),
        };
        ReportRow { callers: 4, connections: 2, rate: None, measured }
    }

    fn options() -> PerfOptions {
        options::parse(["perf", "-m", "a,b", "-b", "8", "-i", "grpc"].map(Into::into)).unwrap()
    }

    #[test]
    fn csv_has_a_field_for_each_heading() {
        let mut csv = Vec::new();
        write_csv(&mut csv, &options(), &[row()]).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let (headings, line) = csv.trim_end().split_once('\n').unwrap();
        let line = line.replace("\"a,b\"", "ab");
        let fields: std::collections::BTreeMap<&str, &str> =
            headings.split(',').zip(line.split(',')).collect();
        assert_eq!(headings.split(',').count(), line.split(',').count());
        assert_eq!(fields["requests"], "1000");
        assert_eq!(fields["errors"], "3");
        assert_eq!(fields["requests_per_second"], "500.00");
        assert_eq!(fields["inferences_per_second"], "4000.00");
        assert_eq!(fields["p99_us"], "250.00");
        assert_eq!(fields["server_us_per_request"], "20.00");
        assert_eq!(fields["client_us_per_request"], "5.00");
        assert_eq!(fields["request_rate"], "");
        assert_eq!(fields["responses_per_second"], "1500.00");
    }

    #[test]
    fn the_table_shows_the_errors_below_their_row() {
        let mut table = Vec::new();
        write_headings(&mut table, &options()).unwrap();
        write_row(&mut table, &row(), &options()).unwrap();
        let table = String::from_utf8(table).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1].len(), lines[2].len());
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["4", "closed", "500", "4000", "250", "250", "250", "250", "20.0", "5.00", "3"]
        );
        assert_eq!(lines[3], "    3 times: 400 bad, \"really\"");
    }
}
