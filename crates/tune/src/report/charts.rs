//! The two plots of the report.

use std::collections::BTreeMap;

use super::{figures, milliseconds};
use crate::plot::{DotStyle, PlotAxis, PlotMark, SvgPlot};
use crate::search::{BatchTime, TuningGoal, TuningPoint};
use crate::tuning::TuningResult;

/// Throughput against latency of every measured point.
pub(super) fn throughput(result: &mut TuningResult) -> SvgPlot {
    let percentile = result.options.percentile.name;
    let mut points: Vec<TuningPoint> = result.search.samples().iter().map(|sample| sample.point).collect();
    points.sort_unstable();
    points.dedup();
    let (chosen, present) = (result.chosen, result.search.space().present);
    let mut marks = Vec::new();
    match result.options.goal {
        TuningGoal::Latency(at) => marks.push(PlotMark::Limit { axis: 0, at, text: format!("{at} ms") }),
        TuningGoal::Throughput(at) => {
            marks.push(PlotMark::Limit { axis: 1, at, text: format!("{at} requests/s") });
        }
        TuningGoal::Knee => {}
    }
    let known = result.search.estimates(&points);
    let mut dots: Vec<_> = points
        .iter()
        .zip(&known)
        .map(|(point, estimate)| {
            let style = match *point {
                point if point == chosen => DotStyle::Chosen,
                point if point.setting == present => DotStyle::Present,
                _ => DotStyle::Plain,
            };
            let text = format!("{point}: {}", figures(estimate, percentile));
            (style, PlotMark::Dot { at: (estimate.latency.exp(), estimate.rate.exp()), style, text })
        })
        .collect();
    dots.sort_by_key(|(style, _)| *style as u8);
    marks.extend(dots.into_iter().map(|(_, dot)| dot));
    SvgPlot {
        title: "Every measured point, estimated from all rounds (green: chosen, orange: the present setting)"
            .to_owned(),
        axes: [
            PlotAxis { name: format!("latency p{percentile} (ms)"), is_logarithmic: true },
            PlotAxis { name: "requests/s".to_owned(), is_logarithmic: false },
        ],
        marks,
    }
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
pub(super) fn cost(result: &TuningResult) -> SvgPlot {
    let (times, line) = batches(result);
    let dots = times.iter().map(|time| PlotMark::Dot {
        at: (f64::from(time.rows), time.mean_ms),
        style: DotStyle::Plain,
        text: format!("{} rows: {} ms, {} batches", time.rows, milliseconds(time.mean_ms), time.count),
    });
    let mut marks: Vec<PlotMark> = dots.collect();
    if let (Some(line), Some(last)) = (line, times.last()) {
        let at = |rows: f64| (rows, (line.batch_ms + line.row_ms * rows).max(0.0));
        let text = format!("{:.3} ms + {:.3} ms for each row", line.batch_ms, line.row_ms);
        marks.insert(0, PlotMark::Line { through: vec![at(0.0), at(f64::from(last.rows))], text });
    }
    let setting = result.chosen.setting;
    let threads = setting.threads.map_or(String::new(), |threads| format!(", {threads} threads each"));
    SvgPlot {
        title: format!("The time of a batch with {} instances{threads}", setting.instances),
        axes: [
            PlotAxis { name: "rows".to_owned(), is_logarithmic: false },
            PlotAxis { name: "ms".to_owned(), is_logarithmic: false },
        ],
        marks,
    }
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
