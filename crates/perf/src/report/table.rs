//! One line for each point: as a table for people, and as CSV for programs.

use std::io::{self, Write};

use super::{ReportRow, microseconds};
use crate::load::Measured;
use crate::options::{PerfOptions, Protocol};

/// Latencies in microseconds: p50, p90, p99 and p99.9.
fn quantiles(row: &ReportRow) -> [f64; 4] {
    [0.5, 0.9, 0.99, 0.999].map(|quantile| microseconds(row.point.measured.latencies.quantile(quantile)))
}

/// Responses per second, the times to the first response and those between responses in microseconds: p50 and p99.
fn streaming(row: &ReportRow) -> [f64; STREAMING.len()] {
    let Measured { first_responses, response_gaps, .. } = &row.point.measured;
    let [first50, first99] = [0.5, 0.99].map(|quantile| microseconds(first_responses.quantile(quantile)));
    let [gap50, gap99] = [0.5, 0.99].map(|quantile| microseconds(response_gaps.quantile(quantile)));
    [row.point.measured.responses_per_second(), first50, first99, gap50, gap99]
}

const HEADINGS: [&str; 11] =
    ["callers", "rate", "req/s", "infer/s", "p50", "p90", "p99", "p99.9", "server", "client", "errors"];
/// The columns for streams. They follow the other columns.
const STREAMING: [&str; 5] = ["resp/s", "first50", "first99", "next50", "next99"];

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
    let [p50, p90, p99, p999] = quantiles(row).map(short);
    let cells = [
        row.callers.to_string(),
        row.rate.map_or("closed".into(), short),
        short(row.point.measured.requests_per_second()),
        short(row.point.measured.requests_per_second() * options.batch as f64),
        p50,
        p90,
        p99,
        p999,
        row.server().map_or("-".into(), short),
        short(row.client()),
        row.failed().to_string(),
    ];
    let streaming = streaming(row).map(short);
    write_cells(out, cells.into_iter().chain(streaming.into_iter().filter(|_| options.streaming)))?;
    if !row.point.is_stable {
        writeln!(out, "    not stable after {} windows", row.point.windows.len())?;
    }
    for (text, count) in &row.point.measured.errors {
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
         client_us_per_request,responses_per_second,first_p50_us,first_p99_us,next_p50_us,next_p99_us,late,stable"
    )?;
    for row in rows {
        let Measured { latencies, elapsed, late, .. } = &row.point.measured;
        let [p50, p90, p99, p999] = quantiles(row);
        let [responses, first50, first99, gap50, gap99] = streaming(row);
        let optional = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{:.3},{:.2},{:.2},{:.2},{p50:.2},{p90:.2},{p99:.2},{p999:.2},{:.2},{},{:.2},\
             {responses:.2},{first50:.2},{first99:.2},{gap50:.2},{gap99:.2},{late},{}",
            name(options.protocol),
            quoted(&options.model),
            options.batch,
            row.callers,
            row.connections,
            optional(row.rate),
            row.good(),
            row.failed(),
            elapsed.as_secs_f64(),
            row.point.measured.requests_per_second(),
            row.point.measured.requests_per_second() * options.batch as f64,
            microseconds(latencies.mean()),
            microseconds(latencies.max()),
            optional(row.server()),
            row.client(),
            row.point.is_stable,
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
    use super::*;
    use crate::report::samples::{self, row};

    fn options() -> PerfOptions {
        samples::options("-m a,b -b 8 -i grpc")
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
