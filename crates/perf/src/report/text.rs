//! The report of `perf_analyzer`, whose lines people know and scripts read, and lines of Nereid's own.

use std::io::{self, Write};
use std::time::Duration;

use super::latency_csv::percentiles;
use super::{ReportRow, server_text, six_digits};
use crate::histogram::Histogram;
use crate::load::Measured;
use crate::model::ModelTraits;
use crate::options::{Distribution, Load, PerfOptions, PointWarmUp, Protocol, Until, Windows};
use crate::search::Points;

/// Writes what is measured, and how.
pub(crate) fn write_settings(
    out: &mut dyn Write,
    options: &PerfOptions,
    traits: &ModelTraits,
) -> io::Result<()> {
    writeln!(out, "*** Measurement Settings ***")?;
    writeln!(out, "  Batch size: {}", options.batch)?;
    writeln!(out, "  Service Kind: TRITON")?;
    if let PointWarmUp::Requests(count) = options.warm_up {
        writeln!(out, "  Sending {count} warmup requests")?;
    }
    write_windows(out, options)?;
    let limit = options.latency_limit.map_or(0, |limit| limit.as_millis());
    match &options.load {
        Load::Closed(points) if points.largest() > 1.0 => {
            writeln!(out, "  Latency limit: {limit} msec")?;
            if !is_endless(points) {
                writeln!(out, "  Concurrency limit: {} concurrent requests", points.largest())?;
            }
        }
        Load::Closed(_) => {}
        Load::Open { rates, distribution, .. } => {
            writeln!(out, "  Latency limit: {limit} msec")?;
            if !is_endless(rates) {
                writeln!(out, "  Request Rate limit: {} requests per seconds", six_digits(rates.largest()))?;
            }
            let name = match distribution {
                Distribution::Constant => "uniform",
                Distribution::Poisson => "poisson",
            };
            writeln!(out, "  Using {name} distribution on request generation")?;
        }
        Load::Intervals { file, .. } => writeln!(out, "  Using the request intervals of {}", file.display())?,
    }
    writeln!(out, "  Using asynchronous calls for inference")?;
    if traits.is_decoupled {
        writeln!(out, "  Detected decoupled model, latency ends with the last response")?;
    }
    writeln!(out)
}

fn is_endless(points: &Points) -> bool {
    matches!(points, Points::Range { end: None, .. })
}

fn write_windows(out: &mut dyn Write, options: &PerfOptions) -> io::Result<()> {
    match options.windows {
        Windows::Single(Until::Requests(count)) => writeln!(out, "  Sending {count} benchmark requests"),
        Windows::Single(Until::Elapsed(time)) => {
            writeln!(out, "  One measurement window: {} msec", time.as_millis())
        }
        Windows::UntilStable { window, .. } => {
            let mode = if let Until::Elapsed(_) = window { "time_windows" } else { "count_windows" };
            writeln!(out, "  Using \"{mode}\" mode for stabilization")?;
            let name = options.percentile.map_or("average".into(), |percentile| format!("p{percentile}"));
            writeln!(out, "  Stabilizing using {name} latency and throughput")?;
            match window {
                Until::Elapsed(time) => writeln!(out, "  Measurement window: {} msec", time.as_millis()),
                Until::Requests(count) => {
                    writeln!(out, "  Minimum number of samples in each window: {count}")
                }
            }
        }
    }
}

/// Writes what is measured next.
pub(crate) fn write_heading(out: &mut dyn Write, callers: usize, rate: Option<f64>) -> io::Result<()> {
    match rate {
        None => writeln!(out, "Request concurrency: {callers}")?,
        Some(rate) => writeln!(out, "Request Rate: {} inference requests per second", six_digits(rate))?,
    }
    out.flush()
}

/// Writes the results of a point.
pub(crate) fn write_point(
    out: &mut dyn Write,
    row: &ReportRow,
    options: &PerfOptions,
    traits: &ModelTraits,
) -> io::Result<()> {
    if options.reports.verbose {
        for (index, window) in row.point.windows.iter().enumerate() {
            let throughput = six_digits(window.throughput * options.batch as f64);
            let latency = window.latency.as_micros();
            let name = options.percentile.map_or("Avg".to_owned(), |percentile| format!("p{percentile}"));
            writeln!(
                out,
                "  Pass [{}] throughput: {throughput} infer/sec. {name} latency: {latency} usec",
                index + 1
            )?;
        }
    }
    writeln!(out, "  Client: ")?;
    write_client(out, row, options, traits)?;
    if options.streaming {
        write_streaming(out, &row.point.measured)?;
    }
    if let Some(server) = row.server() {
        writeln!(
            out,
            "    Processor time: server {} usec/request, client {} usec/request",
            six_digits(server),
            six_digits(row.client())
        )?;
    } else {
        writeln!(out, "    Processor time: client {} usec/request", six_digits(row.client()))?;
    }
    if let Some(statistics) = &row.point.measured.statistics {
        writeln!(out, "  Server: ")?;
        server_text::write(out, statistics, traits)?;
    }
    write_warnings(out, row, options)?;
    writeln!(out)?;
    out.flush()
}

fn write_client(
    out: &mut dyn Write,
    row: &ReportRow,
    options: &PerfOptions,
    traits: &ModelTraits,
) -> io::Result<()> {
    let measured = &row.point.measured;
    writeln!(out, "    Request count: {}", row.good())?;
    if traits.has_sequences && !options.sequences.of_one_request {
        let rate = measured.sequences as f64 / measured.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(out, "    Sequence count: {} ({} seq/sec)", measured.sequences, six_digits(rate))?;
    }
    let throughput = measured.requests_per_second() * options.batch as f64;
    writeln!(out, "    Throughput: {} infer/sec", six_digits(throughput))?;
    if traits.is_decoupled {
        let responses = six_digits(measured.responses_per_second());
        writeln!(out, "    Response Throughput: {responses} infer/sec")?;
    }
    let mean = measured.latencies.mean().as_micros();
    if options.percentile.is_none() {
        let deviation = measured.latencies.deviation().as_micros();
        writeln!(out, "    Avg latency: {mean} usec (standard deviation {deviation} usec)")?;
    }
    for percentile in percentiles(options.percentile) {
        let latency = measured.latencies.quantile(f64::from(percentile) / 100.0).as_micros();
        writeln!(out, "    p{percentile} latency: {latency} usec")?;
    }
    if traits.is_decoupled {
        return Ok(());
    }
    let per_request = |time: Duration| time.as_micros() / u128::from(row.good().max(1));
    let busy = per_request(measured.send_time + measured.receive_time);
    let wait = mean.saturating_sub(busy);
    match options.protocol {
        Protocol::Grpc => writeln!(
            out,
            "    Avg gRPC time: {mean} usec ((un)marshal request/response {busy} usec + response wait {wait} usec)"
        ),
        Protocol::HttpBinary | Protocol::HttpJson => {
            writeln!(
                out,
                "    Avg HTTP time: {mean} usec (send/recv {busy} usec + response wait {wait} usec)"
            )
        }
    }
}

/// Writes the times of the responses of streams.
fn write_streaming(out: &mut dyn Write, measured: &Measured) -> io::Result<()> {
    let mut write = |name: &str, times: &Histogram| {
        let [p50, p90, p95, p99] =
            [0.5, 0.9, 0.95, 0.99].map(|quantile| times.quantile(quantile).as_micros());
        let mean = times.mean().as_micros();
        writeln!(out, "    {name}: avg {mean} usec, p50 {p50}, p90 {p90}, p95 {p95}, p99 {p99} usec")
    };
    write("Time to first response", &measured.first_responses)?;
    write("Time between responses", &measured.response_gaps)?;
    let responses = six_digits(measured.responses_per_second());
    writeln!(out, "    Responses: {} ({responses} responses/sec)", measured.responses)
}

fn write_warnings(out: &mut dyn Write, row: &ReportRow, options: &PerfOptions) -> io::Result<()> {
    let measured = &row.point.measured;
    for (text, count) in &measured.errors {
        writeln!(out, "  [ERROR] {count} times: {text}")?;
    }
    if measured.late > 0 {
        let share = measured.late as f64 / (row.good() + row.failed()).max(1) as f64 * 100.0;
        writeln!(
            out,
            "  [WARNING] {} requests ({share:.2}%) were sent over 1 ms later than they were due. Their latency \
             counts from the time when they were due.",
            measured.late
        )?;
    }
    if !row.point.is_stable {
        let windows = row.point.windows.len();
        let (name, option) = match options.windows {
            Windows::UntilStable { window: Until::Requests(_), .. } => {
                ("request count", "--measurement-request-count")
            }
            _ => ("time", "--measurement-interval"),
        };
        writeln!(
            out,
            "  [WARNING] Not stable: no three windows agreed within {windows} windows. The figures are those of \
             the last windows. Give each window more {name} with {option}."
        )?;
    }
    Ok(())
}

/// Writes a line for each point.
pub(crate) fn write_summary(
    out: &mut dyn Write,
    options: &PerfOptions,
    rows: &[ReportRow],
) -> io::Result<()> {
    let name = options.percentile.map_or("Average".to_owned(), |percentile| format!("p{percentile}"));
    writeln!(out, "Inferences/Second vs. Client {name} Batch Latency")?;
    for row in rows.iter().filter(|row| row.good() > 0) {
        let measured = &row.point.measured;
        let (point, number) = row.point();
        let throughput = six_digits(measured.requests_per_second() * options.batch as f64);
        let latency = measured.stabilizing_latency(options.percentile).as_micros();
        let note = if row.point.is_stable { "" } else { " (not stable)" };
        let number = six_digits(number);
        writeln!(out, "{point}: {number}, throughput: {throughput} infer/sec, latency {latency} usec{note}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use crate::statistics::ServerStatistics;

    fn lines(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<String> {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn point(line: &str, traits: &ModelTraits, row: &ReportRow) -> Vec<String> {
        lines(|out| write_point(out, row, &samples::options(line), traits))
    }

    #[test]
    fn the_lines_of_a_point_are_those_that_people_know() {
        let mut row = samples::row();
        row.point.measured.statistics = Some(ServerStatistics::default());
        let lines = point("-m m -b 2", &ModelTraits::default(), &row);
        assert_eq!(
            lines,
            [
                "  Client: ",
                "    Request count: 1000",
                "    Throughput: 1000 infer/sec",
                "    Avg latency: 250 usec (standard deviation 0 usec)",
                "    p50 latency: 250 usec",
                "    p90 latency: 250 usec",
                "    p95 latency: 250 usec",
                "    p99 latency: 250 usec",
                "    Avg HTTP time: 250 usec (send/recv 7 usec + response wait 243 usec)",
                "    Processor time: server 20 usec/request, client 5 usec/request",
                "  Server: ",
                "    Inference count: 0",
                "    Execution count: 0",
                "    Successful request count: 0",
                "    Avg request latency: 0 usec (overhead 0 usec + queue 0 usec + compute input 0 usec + compute \
                 infer 0 usec + compute output 0 usec)",
                "  [ERROR] 3 times: 400 bad, \"really\"",
                "",
            ]
        );
    }

    #[test]
    fn a_percentile_stands_in_place_of_the_average() {
        let lines = point("-m m --percentile 92 -i grpc", &ModelTraits::default(), &samples::row());
        assert!(!lines.iter().any(|line| line.contains("Avg latency")));
        assert!(lines.contains(&"    p92 latency: 250 usec".to_owned()), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("    Avg gRPC time: 250 usec ((un)marshal")));
        let summary = self::lines(|out| {
            write_summary(out, &samples::options("-m m --percentile 92"), &[samples::row()])
        });
        assert_eq!(
            summary,
            [
                "Inferences/Second vs. Client p92 Batch Latency",
                "Concurrency: 4, throughput: 500 infer/sec, latency 250 usec"
            ]
        );
    }

    #[test]
    fn a_point_says_that_it_is_late_or_not_stable() {
        let mut row = samples::row();
        row.point.measured.late = 100;
        row.point.is_stable = false;
        let text = point("-m m", &ModelTraits::default(), &row).join("\n");
        assert!(text.contains("100 requests (9.97%) were sent over 1 ms later"), "{text}");
        assert!(text.contains("Not stable"), "{text}");
    }

    #[test]
    fn settings_say_how_points_are_measured() {
        let settings = |line: &str| {
            lines(|out| write_settings(out, &samples::options(line), &ModelTraits::default())).join("\n")
        };
        let text = settings("-m m --concurrency-range 1:8");
        assert!(text.starts_with("*** Measurement Settings ***\n  Batch size: 1\n"), "{text}");
        assert!(text.contains("Measurement window: 5000 msec"), "{text}");
        assert!(text.contains("Concurrency limit: 8 concurrent requests"), "{text}");
        let text = settings("-m m --request-rate-range 100:200:50 --measurement-mode count_windows");
        assert!(text.contains("Minimum number of samples in each window: 50"), "{text}");
        assert!(text.contains("Request Rate limit: 200 requests per seconds"), "{text}");
        assert!(text.contains("Using uniform distribution"), "{text}");
        assert!(settings("-m m --request-count 7").contains("Sending 7 benchmark requests"));
    }
}
