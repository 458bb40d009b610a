//! The picture of `--plot`: one SVG file without anything outside of it, for light and dark pages.
//!
//! Of several points it shows percentiles of latency against throughput. Of a single point it shows how latencies are
//! distributed.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::scale::PlotScale;
use super::{ReportRow, microseconds, six_digits};
use crate::options::{PerfOptions, Protocol};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 830.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 410.0;

/// The percentiles that are drawn.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
/// The number of bars of a distribution.
const BARS: usize = 60;

const STYLE: &str = "\
svg{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--faint:#d0d7de;--c0:#0969da;--c1:#1a7f37;--c2:#9a6700;--c3:#cf222e}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#30363d;--c0:#58a6ff;--c1:#3fb950;--c2:#d29922;--c3:#f85149}}
text{fill:var(--ink);font:13px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.small{font-size:11px}
.paper{fill:var(--paper)}.grid{stroke:var(--faint)}.axis{stroke:var(--ink)}
.line{fill:none;stroke-width:2}.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
circle{stroke-width:2}.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.hollow{fill:var(--paper)}
.mark{stroke-dasharray:4 3;stroke-width:1.5}";

/// Writes the picture.
pub(crate) fn write(out: &mut dyn Write, options: &PerfOptions, rows: &[ReportRow]) -> io::Result<()> {
    let rows: Vec<&ReportRow> = rows.iter().filter(|row| row.good() > 0).collect();
    let mut picture = Picture { svg: String::new() };
    picture.begin(options, &rows);
    match rows[..] {
        [] => picture.text((LEFT, TOP + 20.0), "", "start", "There was no valid response."),
        [row] => picture.distribution(row),
        _ => picture.curves(&rows, options),
    }
    writeln!(out, "{}</svg>", picture.svg)?;
    out.flush()
}

/// A picture that is being drawn.
struct Picture {
    svg: String,
}

impl Picture {
    fn begin(&mut self, options: &PerfOptions, rows: &[&ReportRow]) {
        let protocol = match options.protocol {
            Protocol::Grpc => "gRPC",
            Protocol::HttpBinary | Protocol::HttpJson => "HTTP",
        };
        let title = match rows {
            [row] => {
                let (name, number) = row.point();
                let name = name.to_lowercase();
                format!("Latency of '{}', {protocol}, {name} {}", options.model, six_digits(number))
            }
            _ => format!("Latency and throughput of '{}', {protocol}", options.model),
        };
        self.draw(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">"#
        ));
        self.draw(format_args!("<title>{}</title><style>{STYLE}</style>", escaped(&title)));
        self.draw(format_args!(r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>"#));
        self.text((LEFT, 30.0), "title", "start", &title);
        let details = format!("{}, batch {}", options.address, options.batch);
        self.text((LEFT, 50.0), "small", "start", &details);
    }

    /// Percentiles of latency against throughput, in the order of the points.
    fn curves(&mut self, rows: &[&ReportRow], options: &PerfOptions) {
        let throughput = |row: &ReportRow| row.point.measured.requests_per_second() * options.batch as f64;
        let latency =
            |row: &ReportRow, quantile| microseconds(row.point.measured.latencies.quantile(quantile));
        let all: Vec<f64> =
            rows.iter().flat_map(|row| PERCENTILES.map(|(_, quantile)| latency(row, quantile))).collect();
        let x = PlotScale::linear(rows.iter().map(|row| throughput(row)).fold(0.0, f64::max), LEFT, RIGHT);
        let y = latency_scale(&all, BOTTOM, TOP);
        self.axes(&x, &y, "inferences per second", "latency");
        for (index, (name, quantile)) in PERCENTILES.iter().enumerate() {
            let points: Vec<(f64, f64)> =
                rows.iter().map(|row| (x.at(throughput(row)), y.at(latency(row, *quantile)))).collect();
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            self.draw(format_args!(r#"<polyline class="line c{index}" points="{}"/>"#, path.join(" ")));
            for (row, (x, y)) in rows.iter().zip(&points) {
                let hollow = if row.point.is_stable { format!("f{index}") } else { "hollow".into() };
                self.draw(format_args!(
                    r#"<circle class="c{index} {hollow}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#
                ));
            }
            let at = LEFT + 20.0 + 70.0 * index as f64;
            self.draw(format_args!(
                r#"<line class="line c{index}" x1="{at}" x2="{}" y1="462" y2="462"/>"#,
                at + 22.0
            ));
            self.text((at + 28.0, 466.0), "small", "start", name);
        }
        for row in rows {
            let number = six_digits(row.point().1);
            self.text((x.at(throughput(row)), y.at(latency(row, 0.99)) - 9.0), "small", "middle", &number);
        }
        let what = rows.first().map_or("", |row| row.point().0).to_lowercase();
        let note = format!("Numbers: {what}. Hollow: not stable.");
        self.text((RIGHT, 466.0), "small", "end", &note);
    }

    /// The shares of latencies, in bars whose widths are equal ratios.
    fn distribution(&mut self, row: &ReportRow) {
        let latencies = &row.point.measured.latencies;
        let counts: Vec<(f64, u64)> =
            latencies.counts().map(|(latency, count)| (microseconds(latency).max(0.001), count)).collect();
        let values: Vec<f64> = counts.iter().map(|(latency, _)| *latency).collect();
        let (smallest, largest) = ends(&values);
        let x = PlotScale::logarithmic(smallest, largest, LEFT, RIGHT);
        let mut bars = [0_u64; BARS];
        let width = (RIGHT - LEFT) / BARS as f64;
        for (latency, count) in &counts {
            let bar = ((x.at(*latency) - LEFT) / width) as usize;
            bars[bar.min(BARS - 1)] += count;
        }
        let share = |count: u64| count as f64 / latencies.count() as f64 * 100.0;
        let y = PlotScale::linear(share(bars.iter().copied().max().unwrap_or(0)), BOTTOM, TOP);
        self.axes(&x, &y, "latency", "share of requests, %");
        for (index, &count) in bars.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (left, top) = (LEFT + index as f64 * width, y.at(share(count)));
            self.draw(format_args!(
                r#"<rect class="f0" x="{:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"/>"#,
                left + 0.5,
                width - 1.0,
                BOTTOM - top
            ));
        }
        for (index, (name, quantile)) in PERCENTILES.iter().enumerate() {
            let latency = microseconds(latencies.quantile(*quantile));
            let at = x.at(latency.max(0.001));
            self.draw(format_args!(
                r#"<line class="mark c{index}" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{BOTTOM}"/>"#
            ));
            let place = LEFT + 20.0 + 150.0 * index as f64;
            self.draw(format_args!(
                r#"<line class="line c{index}" x1="{place}" x2="{}" y1="462" y2="462"/>"#,
                place + 22.0
            ));
            self.text((place + 28.0, 466.0), "small", "start", &format!("{name} {}", time(latency)));
        }
    }

    fn axes(&mut self, x: &PlotScale, y: &PlotScale, x_name: &str, y_name: &str) {
        let label = |name: &str, value: f64| match name {
            "latency" => time(value),
            _ => six_digits(value),
        };
        for tick in y.ticks() {
            let at = y.at(tick);
            self.draw(format_args!(
                r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1}" y2="{at:.1}"/>"#
            ));
            self.text((LEFT - 8.0, at + 4.0), "small", "end", &label(y_name, tick));
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            self.draw(format_args!(
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{BOTTOM}"/>"#
            ));
            self.text((at, BOTTOM + 16.0), "small", "middle", &label(x_name, tick));
        }
        self.draw(format_args!(r#"<path class="axis" fill="none" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>"#));
        self.text(((LEFT + RIGHT) / 2.0, BOTTOM + 36.0), "", "middle", x_name);
        let middle = (TOP + BOTTOM) / 2.0;
        self.draw(format_args!(
            r#"<text x="20" y="{middle}" text-anchor="middle" transform="rotate(-90 20 {middle})">{}</text>"#,
            escaped(y_name)
        ));
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        self.draw(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    fn draw(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{element}");
    }
}

/// A scale for latencies: by ratios if they differ much.
fn latency_scale(latencies: &[f64], from: f64, to: f64) -> PlotScale {
    let (smallest, largest) = ends(latencies);
    match largest > 10.0 * smallest {
        true => PlotScale::logarithmic(smallest, largest, from, to),
        false => PlotScale::linear(largest, from, to),
    }
}

fn ends(values: &[f64]) -> (f64, f64) {
    let smallest = values.iter().copied().fold(f64::MAX, f64::min).max(0.001);
    (smallest, values.iter().copied().fold(smallest, f64::max))
}

/// A time in a unit that people read.
fn time(micros: f64) -> String {
    match micros {
        0.0 => "0".into(),
        ..1e3 => format!("{} us", three_digits(micros)),
        ..1e6 => format!("{} ms", three_digits(micros / 1e3)),
        _ => format!("{} s", three_digits(micros / 1e6)),
    }
}

fn three_digits(number: f64) -> String {
    let decimals = (2 - number.log10().floor() as i32).clamp(0, 3) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
        assert_eq!(svg.matches("hollow\" cx").count(), PERCENTILES.len());
        assert!(svg.contains(">16</text>") && svg.contains("'a&lt;b'"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    }

    #[test]
    fn a_single_point_is_a_distribution() {
        let svg = drawn("-m m", &[samples::row()]);
        assert_eq!(svg.matches("<rect class=\"f0\"").count(), 1);
        assert!(svg.contains("p99 250 us"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn no_point_is_said() {
        assert!(drawn("-m m", &[]).contains("There was no valid response."));
    }

    #[test]
    fn times_have_a_unit() {
        let written = [0.0, 12.345, 999.0, 1500.0, 2e6].map(time);
        assert_eq!(written, ["0", "12.3 us", "999 us", "1.5 ms", "2 s"]);
    }
}
