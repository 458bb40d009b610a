//! Why others lose: the best point with each other value of each choice.

use crate::search::{Estimate, TuningPoint};
use crate::tuning::TuningResult;

/// A choice with its values.
pub(super) struct TuningDimension {
    /// `Instances`.
    pub(super) name: &'static str,
    /// The values in order.
    pub(super) values: Vec<BestOfValue>,
}

/// The best point with a value.
pub(super) struct BestOfValue {
    /// `2 ms`.
    pub(super) value: String,
    pub(super) point: TuningPoint,
    pub(super) estimate: Estimate,
    /// How often the point was measured. 0: the model predicts it.
    pub(super) rounds: usize,
    pub(super) is_chosen: bool,
}

type ValueOf = fn(&TuningPoint) -> u32;

const DIMENSIONS: [(&str, ValueOf, &str); 5] = [
    ("Instances", |point| point.setting.instances, ""),
    ("Threads of a run", |point| point.setting.threads.unwrap_or(0), ""),
    ("Largest batch", |point| point.setting.batch, ""),
    ("Queue delay", |point| point.setting.delay_us, " us"),
    ("Callers", |point| point.callers, ""),
];

/// Every choice that has more than one value.
pub(super) fn alternatives(result: &mut TuningResult) -> Vec<TuningDimension> {
    let goal = result.options.goal;
    let points: Vec<TuningPoint> = result.search.space().points().collect();
    let known: Vec<_> = result.search.estimates(&points);
    let counts: Vec<usize> = points.iter().map(|point| result.search.count(point)).collect();
    let mut dimensions = Vec::new();
    for (name, value_of, unit) in DIMENSIONS {
        let mut values: Vec<u32> = points.iter().map(value_of).collect();
        values.sort_unstable();
        values.dedup();
        if values.len() < 2 {
            continue;
        }
        let of_value = |value: u32| {
            let has_value = |at: &usize| value_of(&points[*at]) == value;
            let is_chosen = value_of(&result.chosen) == value;
            let best = if is_chosen {
                points.iter().position(|point| *point == result.chosen)
            } else {
                let best_of = |least: usize| {
                    let those = (0..points.len()).filter(has_value).filter(|at| counts[*at] >= least);
                    those.max_by(|a, b| goal.rank(&known[*a]).total_cmp(&goal.rank(&known[*b])))
                };
                best_of(1).or_else(|| best_of(0))
            }?;
            Some(BestOfValue {
                value: format!("{value}{unit}"),
                point: points[best],
                estimate: known[best],
                rounds: counts[best],
                is_chosen,
            })
        };
        dimensions.push(TuningDimension { name, values: values.into_iter().filter_map(of_value).collect() });
    }
    dimensions
}
