//! The picture of `--plot`. Of several points it shows percentiles of latency against throughput. Of a single point it shows
//! how latencies are distributed.

use std::io::{self, Write};

use plot::{DotStyle, PlotAxis, PlotColor, PlotScale, SvgPlot, short_number, time};

use super::{ReportRow, microseconds, six_digits};
use crate::options::{PerfOptions, Protocol};

/// The percentiles that are drawn.
const PERCENTILES: [(&str, f64, PlotColor); 4] = [
    ("p50", 0.5, PlotColor::Blue),
    ("p90", 0.9, PlotColor::Green),
    ("p95", 0.95, PlotColor::Orange),
    ("p99", 0.99, PlotColor::Red),
];
/// The number of bars of a distribution.
const BARS: usize = 60;

/// Writes the picture.
pub(crate) fn write(out: &mut dyn Write, options: &PerfOptions, rows: &[ReportRow]) -> io::Result<()> {
    let rows: Vec<&ReportRow> = rows.iter().filter(|row| row.good() > 0).collect();
    let protocol = match options.protocol {
        Protocol::Grpc => "gRPC",
        Protocol::HttpBinary | Protocol::HttpJson => "HTTP",
    };
    let (model, details) = (&options.model, format!("{}, batch {}", options.address, options.batch));
    let plot = match rows[..] {
        [row] => {
            let (name, number) = row.point();
            let (name, number) = (name.to_lowercase(), six_digits(number));
            distribution(row, &format!("Latency of '{model}', {protocol}, {name} {number}"), &details)
        }
        _ => {
            let title = format!("Latency and throughput of '{model}', {protocol}");
            curves(&rows, options.batch as f64, &title, &details)
        }
    };
    out.write_all(plot.finish().as_bytes())?;
    out.flush()
}

/// Percentiles of latency against throughput, in the order of the points.
fn curves(rows: &[&ReportRow], batch: f64, title: &str, details: &str) -> SvgPlot {
    let place = |row: &ReportRow, quantile| {
        let measured = &row.point.measured;
        (measured.requests_per_second() * batch, microseconds(measured.latencies.quantile(quantile)))
    };
    let all: Vec<(f64, f64)> =
        rows.iter().flat_map(|row| PERCENTILES.map(|(_, quantile, _)| place(row, quantile))).collect();
    let across = PlotScale::linear(all.iter().map(|at| at.0));
    let up = PlotScale::fitting(all.iter().map(|at| at.1));
    let across = PlotAxis { name: "inferences per second", scale: across, label: short_number };
    let mut plot = SvgPlot::new(title, details, [across, latency_axis(up)]);
    for (name, quantile, color) in PERCENTILES {
        let through: Vec<(f64, f64)> = rows.iter().map(|row| place(row, quantile)).collect();
        plot.line(&through, color, name);
        for (row, at) in rows.iter().zip(through) {
            let style = DotStyle { color, radius: 3.5, is_hollow: !row.point.is_stable };
            plot.dot(at, style, &format!("{name} {}", time(at.1)));
        }
    }
    for row in rows {
        plot.label(place(row, 0.99), &six_digits(row.point().1));
    }
    match rows.first() {
        Some(row) => {
            plot.note(&format!("Numbers: {}. Hollow: not stable.", row.point().0.to_lowercase()));
        }
        None => plot.note("There was no valid response."),
    }
    plot
}

/// The shares of latencies, in bars whose widths are equal ratios.
fn distribution(row: &ReportRow, title: &str, details: &str) -> SvgPlot {
    let latencies = &row.point.measured.latencies;
    let across = PlotScale::logarithmic(latencies.counts().map(|(latency, _)| microseconds(latency)));
    let mut counts = [0_u64; BARS];
    for (latency, count) in latencies.counts() {
        let bar = (across.share(microseconds(latency)) * BARS as f64) as usize;
        counts[bar.min(BARS - 1)] += count;
    }
    let shares = counts.map(|count| count as f64 / latencies.count() as f64 * 100.0);
    let up = PlotScale::linear(shares);
    let up = PlotAxis { name: "share of requests, %", scale: up, label: short_number };
    let mut plot = SvgPlot::new(title, details, [latency_axis(across), up]);
    for (index, &share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        let [from, to] = [index, index + 1].map(|end| across.value(end as f64 / BARS as f64));
        plot.bar((from, to), share, PlotColor::Blue, &format!("{} %", short_number(share)));
    }
    for (name, quantile, color) in PERCENTILES {
        let latency = microseconds(latencies.quantile(quantile));
        plot.limit_across(latency, color, &format!("{name} {}", time(latency)));
    }
    plot
}

fn latency_axis(scale: PlotScale) -> PlotAxis<'static> {
    PlotAxis { name: "latency", scale, label: time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    fn drawn(line: &str, rows: &[ReportRow]) -> String {
        let mut out = Vec::new();
        write(&mut out, &samples::options(line), rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn several_points_are_curves_with_their_numbers() {
        let mut second = samples::row();
        second.callers = 16;
        second.point.is_stable = false;
        second.point.measured.completed = 1800;
        let svg = drawn("-m a<b", &[samples::row(), second]);
        assert_eq!(svg.matches("<polyline").count(), PERCENTILES.len());
        assert_eq!(svg.matches("<circle").count(), 2 * PERCENTILES.len());
        assert_eq!(svg.matches(" hollow\"").count(), PERCENTILES.len());
        assert!(svg.contains(">16</text>") && svg.contains("'a&lt;b'"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    }

    #[test]
    fn a_single_point_is_a_distribution() {
        let svg = drawn("-m m", &[samples::row()]);
        assert_eq!(svg.matches("<rect class=\"bar").count(), 1);
        assert!(svg.contains("p99 250 us"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn no_point_is_said() {
        assert!(drawn("-m m", &[]).contains("There was no valid response."));
    }
}
