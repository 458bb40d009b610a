//! The model of the cost: what a batch costs by its rows, the threads and the instances, and what follows from that for
//! throughput.
//!
//! The time of a batch of n rows on an idle machine, by one thread, is `a + b n`. Threads shorten a share of it. Instances
//! slow each other down when all their threads together need more than the processors. Each request also costs the server
//! and the client a constant time. Throughput is bounded by the instances, by the processors and by the callers.

use super::simplex;
use super::space::TuningPoint;

/// The mean time of the batches of one size, as the server counted them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTime {
    /// Rows.
    pub rows: u32,
    /// How many batches.
    pub count: u64,
    /// The mean time of one, in milliseconds.
    pub mean_ms: f64,
}

/// The constants of the model. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// What a batch costs, whatever its size.
    pub batch_ms: f64,
    /// What a row costs.
    pub row_ms: f64,
    /// The share of a batch's time that threads divide among themselves.
    pub parallel: f64,
    /// What a request costs outside of the batch, in server and client.
    pub request_ms: f64,
    processors: f64,
}

/// What a fit uses.
pub(crate) struct CostEvidence<'a> {
    /// Points with their requests per second.
    pub(crate) rates: &'a [(TuningPoint, f64)],
    /// Points with the times of their batches.
    pub(crate) batches: &'a [(TuningPoint, BatchTime)],
    pub(crate) processors: u32,
}

/// How sharply the smallest of several bounds holds. With infinity it is the minimum.
const SHARPNESS: f64 = 4.0;

/// The weight of a batch time, against that of a throughput.
const BATCH_WEIGHT: f64 = 0.3;

impl CostModel {
    /// The constants that explain the measurements best. Relative errors count.
    pub(crate) fn fit(evidence: &CostEvidence<'_>) -> CostModel {
        let processors = f64::from(evidence.processors.max(1));
        let best = evidence.rates.iter().map(|(_, rate)| *rate).fold(1e-3, f64::max);
        let row_ms = 1e3 * processors / best / 2.0;
        let prior = [row_ms.ln(), row_ms.ln(), 0.0, (row_ms / 4.0).ln()];
        let widths = [3.0, 3.0, 1.5, 2.0];
        let of = |place: &[f64; 4]| CostModel {
            batch_ms: place[0].exp(),
            row_ms: place[1].exp(),
            parallel: 1.0 / (1.0 + (-place[2]).exp()),
            request_ms: place[3].exp(),
            processors,
        };
        let found = simplex::minimize(prior, 1.0, 250, |place| {
            let model = of(place);
            let far = |(&at, (prior, width)): (&f64, (&f64, &f64))| ((at - prior) / width).powi(2);
            let unlikely: f64 = place.iter().zip(prior.iter().zip(&widths)).map(far).sum();
            let rates = evidence.rates.iter().map(|(point, rate)| (model.rate(point) / rate).ln().powi(2));
            let batches = evidence.batches.iter().map(|(point, batch)| {
                let setting = &point.setting;
                let told = model.time_ms(f64::from(batch.rows), setting.instances, setting.threads);
                BATCH_WEIGHT * (told / batch.mean_ms).ln().powi(2)
            });
            0.002 * unlikely + rates.sum::<f64>() + batches.sum::<f64>()
        });
        of(&found)
    }

    /// How many processors a batch uses.
    fn width(&self, threads: Option<u32>) -> f64 {
        let threads = f64::from(threads.unwrap_or(1).max(1));
        1.0 / (1.0 - self.parallel + self.parallel / threads)
    }

    /// How many times longer a batch takes because of the other instances.
    #[must_use]
    pub fn slowdown(&self, instances: f64, threads: Option<u32>) -> f64 {
        let demand = instances * self.width(threads) / self.processors;
        (1.0 + demand.powi(6)).powf(1.0 / 6.0)
    }

    /// The time of a batch while so many instances are busy.
    #[must_use]
    pub fn time_ms(&self, rows: f64, instances: u32, threads: Option<u32>) -> f64 {
        self.batch_time(rows, f64::from(instances), threads)
    }

    fn batch_time(&self, rows: f64, instances: f64, threads: Option<u32>) -> f64 {
        (self.batch_ms + self.row_ms * rows) / self.width(threads) * self.slowdown(instances, threads)
    }

    /// Requests per second at a point.
    #[must_use]
    pub fn rate(&self, point: &TuningPoint) -> f64 {
        let setting = &point.setting;
        let (callers, batch) = (f64::from(point.callers), f64::from(setting.batch));
        let (mut instances, delay) = (f64::from(setting.instances), f64::from(setting.delay_us) / 1e3);
        let mut rows = batch.min((callers / instances).max(1.0));
        let mut wait = 0.0;
        if setting.delay_us > 0 {
            // An idle instance waits until the batch is full, or for the delay.
            rows = batch.min(callers);
            wait = if callers < batch { delay } else { 0.0 };
        }
        instances = instances.min(callers / rows).max(1.0);
        let time = self.batch_time(rows, instances, setting.threads) + wait;
        let bounds = [
            instances * rows / time,
            self.processors / (self.request_ms + self.batch_ms / rows + self.row_ms),
            callers / (time + self.request_ms),
        ];
        1e3 * bounds.iter().map(|bound| bound.powf(-SHARPNESS)).sum::<f64>().powf(-1.0 / SHARPNESS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::space::TunedSetting;
    use super::*;

    fn model() -> CostModel {
        CostModel { batch_ms: 2.0, row_ms: 0.5, parallel: 0.8, request_ms: 0.05, processors: 2.0 }
    }

    fn point(instances: u32, threads: u32, batch: u32, callers: u32) -> TuningPoint {
        TuningPoint {
            setting: TunedSetting { instances, threads: Some(threads), batch, delay_us: 0 },
            callers,
        }
    }

    #[test]
    fn larger_batches_bring_more_and_a_lone_caller_gets_one_answer_at_a_time() {
        let model = model();
        assert!(model.rate(&point(1, 1, 8, 64)) > 1.5 * model.rate(&point(1, 1, 1, 64)));
        let lone = model.rate(&point(1, 1, 8, 1));
        assert!(lone < 1e3 / 2.5 && lone > 0.7 * 1e3 / 2.5, "{lone}");
        assert!(model.rate(&point(1, 1, 8, 64)) < 1e3 * 8.0 / 6.0);
    }

    #[test]
    fn a_delay_costs_a_lone_caller() {
        let mut delayed = point(1, 1, 8, 1);
        delayed.setting.delay_us = 4000;
        assert!(model().rate(&delayed) < 0.6 * model().rate(&point(1, 1, 8, 1)));
    }

    #[test]
    fn a_fit_of_what_the_model_itself_says_finds_its_rates_again() {
        let (truth, mut rates) = (model(), Vec::new());
        for instances in [1, 2] {
            for threads in [1, 2] {
                for batch in [1, 4, 16] {
                    for callers in [1, 8, 32] {
                        let point = point(instances, threads, batch, callers);
                        rates.push((point, truth.rate(&point)));
                    }
                }
            }
        }
        let fitted = CostModel::fit(&CostEvidence { rates: &rates, batches: &[], processors: 2 });
        for (point, rate) in &rates {
            let error = (fitted.rate(point) / rate).ln().abs();
            assert!(error < 0.05, "{point}: {} instead of {rate}", fitted.rate(point));
        }
    }

    #[test]
    fn batch_times_alone_give_the_line() {
        let (truth, at) = (model(), point(1, 1, 16, 1));
        let of =
            |rows: u32| BatchTime { rows, count: 1, mean_ms: truth.time_ms(f64::from(rows), 1, Some(1)) };
        let batches: Vec<_> = [1, 2, 4, 8, 16].map(|rows| (at, of(rows))).into();
        let rates = [(at, truth.rate(&at))];
        let fitted = CostModel::fit(&CostEvidence { rates: &rates, batches: &batches, processors: 2 });
        let error = (fitted.row_ms / truth.row_ms).ln().abs();
        assert!(error < 0.1, "{fitted:?}");
    }
}
