//! What the report and the terminal say of a result.

use crate::search::{Estimate, TuningGoal, TuningPoint};
use crate::tuning::TuningResult;

/// A rate and a latency in words.
pub(super) fn figures(estimate: &Estimate, percentile: &str) -> String {
    format!(
        "{:.0} requests/s at p{percentile} {} ms",
        estimate.rate.exp(),
        milliseconds(estimate.latency.exp())
    )
}

pub(super) fn milliseconds(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

/// A difference of logarithms as a percentage with its sign.
pub(super) fn percent(difference: f64) -> String {
    format!("{:+.0} %", (difference.exp() - 1.0) * 100.0)
}

/// The rule of the goal as a sentence.
pub(super) fn rule(goal: TuningGoal, percentile: &str) -> String {
    match goal {
        TuningGoal::Latency(most) => {
            format!("The best point has the highest throughput whose p{percentile} is not above {most} ms.")
        }
        TuningGoal::Throughput(least) => {
            format!(
                "The best point has the lowest p{percentile} whose throughput is not below {least} requests/s."
            )
        }
        TuningGoal::Knee => format!(
            "No target was given. The best point is the knee: it has the largest throughput / p{percentile}^0.25. So a \
             latency that is twice as long must bring 19 % more throughput."
        ),
    }
}

/// The result in a few lines, for the terminal.
#[must_use]
pub fn summary(result: &mut TuningResult) -> String {
    let chosen = result.search.estimate(&result.chosen);
    let percentile = result.options.percentile.name;
    let mut text =
        format!("{}: {}\n  {}\n", result.options.model, result.chosen, figures(&chosen, percentile));
    if let Some((present, gain)) = gain(result) {
        let figures = figures(&present, percentile);
        text.push_str(&format!(
            "  as it is now, with as many callers: {figures} ({gain} throughput by the change)\n"
        ));
    }
    if let Some(missed) = missed(result) {
        text.push_str(&format!("  {missed}\n"));
    }
    text
}

/// What the present setting has with the callers of the choice, and what the choice gains. `None` if it was not measured,
/// or was chosen.
pub(super) fn gain(result: &mut TuningResult) -> Option<(Estimate, String)> {
    let present = TuningPoint { setting: result.search.space().present, callers: result.chosen.callers };
    if present == result.chosen || result.search.count(&present) == 0 {
        return None;
    }
    let (own, chosen) = (result.search.estimate(&present), result.search.estimate(&result.chosen));
    Some((own, percent(chosen.rate - own.rate)))
}

/// What is missing if no point keeps the limit.
pub(super) fn missed(result: &mut TuningResult) -> Option<String> {
    let chosen = result.search.estimate(&result.chosen);
    if result.options.goal.is_kept(&chosen) {
        return None;
    }
    let told = figures(&chosen, result.options.percentile.name);
    Some(match result.options.goal {
        TuningGoal::Latency(most) => format!("No point keeps {most} ms. The nearest has {told}."),
        TuningGoal::Throughput(least) => {
            format!("No point reaches {least} requests/s. The nearest has {told}.")
        }
        TuningGoal::Knee => return None,
    })
}
