//! The two plots of the report.

use std::collections::BTreeMap;

use plot::{DotStyle, PlotAxis, PlotColor, PlotScale, SvgPlot, short_number};

use super::sentences::{figures, milliseconds};
use crate::search::{BatchTime, TuningGoal, TuningPoint};
use crate::tuning::TuningResult;

/// Throughput against latency of every measured point.
pub(super) fn throughput(result: &mut TuningResult) -> String {
    let percentile = result.options.percentile.name;
    let mut points: Vec<TuningPoint> = result.search.samples().iter().map(|sample| sample.point).collect();
    points.sort_unstable();
    points.dedup();
    let known = result.search.estimates(&points);
    let (longest, least) = match result.options.goal {
        TuningGoal::Latency(at) => (Some(at), None),
        TuningGoal::Throughput(at) => (None, Some(at)),
        TuningGoal::Knee => (None, None),
    };
    let latencies = known.iter().map(|estimate| estimate.latency.exp()).chain(longest);
    let rates = known.iter().map(|estimate| estimate.rate.exp()).chain(least);
    let latency = format!("latency p{percentile} (ms)");
    let axes =
        [axis(&latency, PlotScale::logarithmic(latencies)), axis("requests/s", PlotScale::linear(rates))];
    let mut plot = SvgPlot::new("Every measured point", "Estimated from all rounds", axes);
    plot.note("Green: chosen. Orange: the present setting.");
    longest.iter().for_each(|at| plot.limit_across(*at, PlotColor::Red, &format!("{at} ms")));
    least.iter().for_each(|at| plot.limit_up(*at, PlotColor::Red, &format!("{at} requests/s")));
    let (chosen, present) = (result.chosen, result.search.space().present);
    let mut dots: Vec<_> = points
        .iter()
        .zip(&known)
        .map(|(point, estimate)| match *point {
            point if point == chosen => (2, dot(PlotColor::Green, 6.5), point, estimate),
            point if point.setting == present => (1, dot(PlotColor::Orange, 5.0), point, estimate),
            point => (0, dot(PlotColor::Blue, 2.5), point, estimate),
        })
        .collect();
    dots.sort_by_key(|(rank, ..)| *rank);
    for (_, style, point, estimate) in dots {
        let at = (estimate.latency.exp(), estimate.rate.exp());
        plot.dot(at, style, &format!("{point}: {}", figures(estimate, percentile)));
    }
    plot.finish()
}

fn axis(name: &str, scale: PlotScale) -> PlotAxis<'_> {
    PlotAxis { name, scale, label: short_number }
}

fn dot(color: PlotColor, radius: f64) -> DotStyle {
    DotStyle { color, radius, is_hollow: false }
}

/// The line `a + b n` through the times of batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchLine {
    pub(super) batch_ms: f64,
    pub(super) row_ms: f64,
}

/// The times of the batches with the instances and threads of the choice, and a line through them. No line: there are batches
/// of one size only.
pub(super) fn batches(result: &TuningResult) -> (Vec<BatchTime>, Option<BatchLine>) {
    let of = |point: &TuningPoint| (point.setting.instances, point.setting.threads);
    let mut sums: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for sample in result.search.samples().iter().filter(|sample| of(&sample.point) == of(&result.chosen)) {
        for batch in &sample.batches {
            let sum = sums.entry(batch.rows).or_default();
            *sum = (sum.0 + batch.count, sum.1 + batch.mean_ms * batch.count as f64);
        }
    }
    let times: Vec<BatchTime> = sums
        .into_iter()
        .map(|(rows, (count, sum))| BatchTime { rows, count, mean_ms: sum / count as f64 })
        .collect();
    let line = line_through(&times);
    (times, line)
}

/// Sizes that occur seldom count less. A weight is at most that of a thousand batches.
fn line_through(times: &[BatchTime]) -> Option<BatchLine> {
    let weighted = || {
        times.iter().map(|time| {
            // Relative errors count: the deviation of a long time is longer, too.
            let weight = time.count.min(1000) as f64 / time.mean_ms.powi(2).max(1e-12);
            (weight, f64::from(time.rows), time.mean_ms)
        })
    };
    let total: f64 = weighted().map(|(weight, ..)| weight).sum();
    let rows = weighted().map(|(weight, rows, _)| weight * rows).sum::<f64>() / total;
    let time = weighted().map(|(weight, _, time)| weight * time).sum::<f64>() / total;
    let spread: f64 = weighted().map(|(weight, at, _)| weight * (at - rows).powi(2)).sum();
    let joint: f64 = weighted().map(|(weight, at, of)| weight * (at - rows) * (of - time)).sum();
    if times.len() < 2 || spread <= 0.0 {
        return None;
    }
    let row_ms = joint / spread;
    let batch_ms = time - row_ms * rows;
    // A batch does not cost less than nothing. Then the best line begins at zero.
    Some(if batch_ms < 0.0 {
        let square: f64 = weighted().map(|(weight, at, _)| weight * at * at).sum();
        let product: f64 = weighted().map(|(weight, at, of)| weight * at * of).sum();
        BatchLine { batch_ms: 0.0, row_ms: product / square }
    } else {
        BatchLine { batch_ms, row_ms }
    })
}

/// The cost of a batch against its size.
pub(super) fn cost(result: &TuningResult) -> String {
    let (times, line) = batches(result);
    let at = |line: BatchLine, rows: f64| (rows, (line.batch_ms + line.row_ms * rows).max(0.0));
    let line = line.zip(times.last());
    let line = line.map(|(line, last)| (line, [at(line, 0.0), at(line, f64::from(last.rows))]));
    let ends = line.iter().flat_map(|(_, ends)| ends.map(|at| at.1));
    let rows = PlotScale::linear(times.iter().map(|time| f64::from(time.rows)));
    let costs = PlotScale::linear(times.iter().map(|time| time.mean_ms).chain(ends));
    let setting = result.chosen.setting;
    let threads = setting.threads.map_or(String::new(), |threads| format!(", {threads} threads each"));
    let details = format!("With {} instances{threads}", setting.instances);
    let mut plot = SvgPlot::new("The time of a batch", &details, [axis("rows", rows), axis("ms", costs)]);
    if let Some((BatchLine { batch_ms, row_ms }, ends)) = line {
        plot.line(&ends, PlotColor::Green, &format!("{batch_ms:.3} ms + {row_ms:.3} ms for each row"));
    }
    for BatchTime { rows, count, mean_ms } in times {
        let text = format!("{rows} rows: {} ms, {count} batches", milliseconds(mean_ms));
        plot.dot((f64::from(rows), mean_ms), dot(PlotColor::Blue, 2.5), &text);
    }
    plot.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_through_exact_times() {
        let of = |rows: u32| BatchTime { rows, count: 10, mean_ms: 2.0 + 0.5 * f64::from(rows) };
        let line = line_through(&[of(1), of(4), of(8)]).expect("there are several sizes");
        assert!((line.batch_ms - 2.0).abs() < 1e-9 && (line.row_ms - 0.5).abs() < 1e-9, "{line:?}");
        let of = |rows: u32, mean_ms: f64| BatchTime { rows, count: 10, mean_ms };
        let line = line_through(&[of(1, 0.5), of(4, 4.0)]).expect("there are two sizes");
        assert!(line.batch_ms == 0.0 && line.row_ms > 0.5 && line.row_ms < 1.0, "{line:?}");
        assert_eq!(line_through(&[of(4, 1.0)]), None);
        assert_eq!(line_through(&[]), None);
    }
}
