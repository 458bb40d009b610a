//! What is believed of every point after some measurements: the model of the cost, corrected by Gaussian processes.

use super::cost::{CostEvidence, CostModel};
use super::goal::{Estimate, TuningGoal};
use super::residual::{Residual, ResidualShape};
use super::sample::TuningSample;
use super::space::TuningPoint;

/// Predicts throughput and latency.
pub(crate) struct Belief {
    pub(crate) cost: CostModel,
    /// Of the logarithm of the throughput.
    rate: Residual,
    /// Of the logarithm of the latency.
    latency: Residual,
}

impl Belief {
    /// Learns from samples. `shapes` are those of the processes; `None`: the most likely ones.
    pub(crate) fn of(
        samples: &[TuningSample],
        processors: u32,
        shapes: Option<(ResidualShape, ResidualShape)>,
    ) -> Belief {
        let rates: Vec<_> = samples.iter().map(|sample| (sample.point, sample.rate)).collect();
        let batches: Vec<_> = samples
            .iter()
            .flat_map(|sample| sample.batches.iter().map(|&batch| (sample.point, batch)))
            .filter(|(_, batch)| batch.count >= MIN_BATCHES && batch.mean_ms > 0.0)
            .collect();
        let cost = CostModel::fit(&CostEvidence { rates: &rates, batches: &batches, processors });
        let of = |told: &dyn Fn(&TuningSample) -> f64| -> Vec<(TuningPoint, f64)> {
            samples.iter().map(|sample| (sample.point, told(sample))).collect()
        };
        let rate_errors = of(&|sample| (sample.rate / cost.rate(&sample.point)).ln());
        let latency_errors =
            of(&|sample| sample.latency_ms.max(1e-6).ln() - usual_latency(&cost, &sample.point));
        let (rate, latency) = shapes.unzip();
        Belief {
            cost,
            rate: Residual::of(&rate_errors, rate),
            latency: Residual::of(&latency_errors, latency),
        }
    }

    pub(crate) fn shapes(&self) -> (ResidualShape, ResidualShape) {
        (self.rate.shape(), self.latency.shape())
    }

    /// The prediction for a point.
    pub(crate) fn at(&self, point: &TuningPoint) -> Estimate {
        let ((rate, rate_sd), (latency, latency_sd)) = (self.rate.at(point), self.latency.at(point));
        Estimate {
            rate: self.cost.rate(point).ln() + rate,
            rate_sd,
            latency: usual_latency(&self.cost, point) + latency,
            latency_sd,
        }
    }

    /// How much better than `best` a point is expected to be, as a share. A point that is worse counts as zero.
    pub(crate) fn promise(&self, point: &TuningPoint, goal: TuningGoal, best: Option<&Estimate>) -> f64 {
        let own = self.at(point);
        let Some(best) = best else { return 1.0 };
        if let Some((missing, _)) = goal.margin(best).filter(|(margin, _)| *margin < 0.0) {
            // Nothing keeps the limit yet: what comes nearest is wanted.
            return goal.margin(&own).map_or(0.0, |(margin, sd)| improvement(margin - missing, sd));
        }
        let ((worth, sd), (best, _)) = (goal.worth(&own), goal.worth(best));
        let kept = goal.margin(&own).map_or(1.0, |(margin, sd)| normal_share(margin / sd));
        improvement(worth - best, sd) * kept
    }
}

/// Times of fewer batches are chance.
const MIN_BATCHES: u64 = 5;

/// The logarithm of the milliseconds that a request takes by Little's law, if all callers wait equally long.
fn usual_latency(cost: &CostModel, point: &TuningPoint) -> f64 {
    (1e3 * f64::from(point.callers) / cost.rate(point)).ln()
}

/// The mean of the positive part of a normal variable.
fn improvement(mean: f64, sd: f64) -> f64 {
    let z = mean / sd;
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    mean * normal_share(z) + sd * density
}

/// The share of a normal variable below `z`: the formula 26.2.17 of Abramowitz and Stegun, with an error under 1e-7.
fn normal_share(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let powers = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = powers.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_normal_distribution_are_right() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.0, 0.158_655_3), (2.0, 0.977_249_9)] {
            assert!((normal_share(z) - share).abs() < 1e-6, "{z}: {}", normal_share(z));
        }
    }

    #[test]
    fn what_is_certain_improves_by_its_difference_or_not_at_all() {
        assert!((improvement(0.2, 1e-6) - 0.2).abs() < 1e-6);
        assert!(improvement(-0.2, 1e-6).abs() < 1e-9);
        assert!(improvement(-0.2, 0.2) > 0.01);
    }
}
