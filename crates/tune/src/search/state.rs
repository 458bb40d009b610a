//! The state of the search, and its next step.

use std::collections::BTreeSet;

use super::belief::Belief;
use super::cost::CostModel;
use super::goal::{Estimate, TuningGoal};
use super::residual::ResidualShape;
use super::sample::TuningSample;
use super::space::{TunedSetting, TuningPoint, TuningSpace};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// Measure this point, and tell the result.
    Measure(TuningPoint),
    /// Nothing more is worth a measurement.
    Enough,
}

/// How the points are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchPlan {
    /// By the expected improvement.
    Model,
    /// Every point of the space in turn.
    Exhaustive,
}

/// The state of the search: what was measured.
pub struct Search {
    space: TuningSpace,
    goal: TuningGoal,
    plan: SearchPlan,
    samples: Vec<TuningSample>,
    failed: BTreeSet<TuningPoint>,
    /// The shapes of the two processes, and how many samples there were when they were chosen.
    shapes: Option<(ResidualShape, ResidualShape, usize)>,
}

/// How many settings are measured again in the end.
const FINALISTS: usize = 4;

/// How often a finalist is measured, at most.
const ROUNDS: usize = 6;

/// The shapes of the processes are chosen again after so many samples.
const RESHAPE_AFTER: usize = 6;

/// An expected improvement below this share is not worth a measurement.
const LEAST_IMPROVEMENT: f64 = 0.001;

/// Before so many points are measured, a promise says little.
const LEAST_POINTS: usize = 12;

/// Points that are as good as the best, up to this share, are equals. The one that takes least wins.
const EQUAL: f64 = 0.01;

impl Search {
    /// A search without measurements.
    #[must_use]
    pub fn new(space: TuningSpace, goal: TuningGoal, plan: SearchPlan) -> Search {
        let (samples, failed) = (Vec::new(), BTreeSet::new());
        Search { space, goal, plan, samples, failed, shapes: None }
    }

    /// The space.
    #[must_use]
    pub fn space(&self) -> &TuningSpace {
        &self.space
    }

    /// Every measurement so far, in order.
    #[must_use]
    pub fn samples(&self) -> &[TuningSample] {
        &self.samples
    }

    /// Takes a measurement.
    pub fn record(&mut self, sample: TuningSample) {
        self.samples.push(sample);
    }

    /// Takes the news that a point cannot be measured. It is not tried again.
    pub fn record_failure(&mut self, point: TuningPoint) {
        self.failed.insert(point);
    }

    /// The next step. `left` is how many measurements there is time for.
    pub fn next(&mut self, left: usize) -> SearchStep {
        if left == 0 {
            return SearchStep::Enough;
        }
        let total = self.samples.len() + left;
        let kept_back = (total / 3).clamp(1, FINALISTS * ROUNDS * 2 / 3);
        // There is nothing to measure again yet.
        let is_first = self.samples.is_empty();
        if self.plan == SearchPlan::Exhaustive || left > kept_back || is_first {
            // A repeated measurement may have shown that there is more to find.
            if let Some(point) = self.unmeasured() {
                return SearchStep::Measure(point);
            }
        }
        self.again().map_or(SearchStep::Enough, SearchStep::Measure)
    }

    /// The next point that was not measured; `None` if no point promises enough.
    fn unmeasured(&mut self) -> Option<TuningPoint> {
        let tried: BTreeSet<TuningPoint> =
            self.samples.iter().map(|sample| sample.point).chain(self.failed.iter().copied()).collect();
        let is_open = |point: &TuningPoint| !tried.contains(point);
        if self.plan == SearchPlan::Exhaustive {
            return self.space.points().find(is_open);
        }
        if let Some(point) = opening(&self.space).into_iter().find(is_open) {
            return Some(point);
        }
        let belief = self.believe();
        let best = self.measured(&belief).first().map(|(_, estimate)| *estimate);
        let open = self.space.points().filter(is_open);
        let promised = open.map(|point| (belief.promise(&point, self.goal, best.as_ref()), point));
        let (promise, point) = promised.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (promise > LEAST_IMPROVEMENT || tried.len() < LEAST_POINTS).then_some(point)
    }

    /// The finalist that was measured the fewest times; `None` if all were measured often enough.
    fn again(&mut self) -> Option<TuningPoint> {
        let rounds = if self.plan == SearchPlan::Exhaustive { ROUNDS / 2 } else { ROUNDS };
        let best = self.finalists().first()?.1;
        let finalists = self.best_by(TuningGoal::hopeful_rank);
        let open = finalists.iter().filter(|(point, estimate)| {
            let ((best, best_sd), (own, own_sd)) = (self.goal.worth(&best), self.goal.worth(estimate));
            let may_win = own + 2.0 * own_sd >= best - 2.0 * best_sd;
            self.count(point) < rounds && may_win
        });
        open.min_by_key(|(point, _)| self.count(point)).map(|(point, _)| *point)
    }

    /// How often a point was measured.
    #[must_use]
    pub fn count(&self, point: &TuningPoint) -> usize {
        self.samples.iter().filter(|sample| sample.point == *point).count()
    }

    /// The best points of different settings, the best first, with what is believed of them.
    #[must_use]
    pub fn finalists(&mut self) -> Vec<(TuningPoint, Estimate)> {
        self.best_by(TuningGoal::rank)
    }

    fn best_by(&mut self, rank: impl Fn(TuningGoal, &Estimate) -> f64) -> Vec<(TuningPoint, Estimate)> {
        let belief = self.believe();
        let mut known = self.measured(&belief);
        known.sort_by(|a, b| rank(self.goal, &b.1).total_cmp(&rank(self.goal, &a.1)));
        let mut finalists: Vec<(TuningPoint, Estimate)> = Vec::new();
        for (point, estimate) in known {
            let is_new = finalists.iter().all(|(other, _)| other.setting != point.setting);
            if is_new && finalists.len() < FINALISTS {
                finalists.push((point, estimate));
            }
        }
        finalists
    }

    /// The point to choose: of those that are as good as the best, the one that takes least. `None` without measurements.
    #[must_use]
    pub fn choice(&mut self) -> Option<(TuningPoint, Estimate)> {
        let belief = self.believe();
        let known = self.measured(&belief);
        let (first, best) = *known.first()?;
        let rank = self.goal.rank(&best);
        let rounds = self.count(&first);
        let equals = known.into_iter().filter(|(point, estimate)| {
            self.goal.rank(estimate) >= rank - EQUAL && self.count(point) >= rounds.min(2)
        });
        equals.min_by_key(|(point, _)| {
            let TunedSetting { instances, threads, batch, delay_us } = point.setting;
            (instances * threads.unwrap_or(1), instances, delay_us, batch, point.callers)
        })
    }

    /// What is believed of every measured point, the best first.
    fn measured(&self, belief: &Belief) -> Vec<(TuningPoint, Estimate)> {
        let points: BTreeSet<TuningPoint> = self.samples.iter().map(|sample| sample.point).collect();
        let mut known: Vec<_> = points.into_iter().map(|point| (point, belief.at(&point))).collect();
        known.sort_by(|a, b| self.goal.rank(&b.1).total_cmp(&self.goal.rank(&a.1)));
        known
    }

    /// The belief after all samples.
    fn believe(&mut self) -> Belief {
        let known = self.shapes.filter(|(.., at)| self.samples.len() < at + RESHAPE_AFTER);
        let belief =
            Belief::of(&self.samples, self.space.processors, known.map(|(rate, latency, _)| (rate, latency)));
        if known.is_none() {
            let (rate, latency) = belief.shapes();
            self.shapes = Some((rate, latency, self.samples.len()));
        }
        belief
    }

    /// The fitted model of the cost.
    #[must_use]
    pub fn cost(&mut self) -> CostModel {
        self.believe().cost
    }

    /// What is believed of a point.
    #[must_use]
    pub fn estimate(&mut self, point: &TuningPoint) -> Estimate {
        self.believe().at(point)
    }

    /// What is believed of each of several points.
    #[must_use]
    pub fn estimates(&mut self, points: &[TuningPoint]) -> Vec<Estimate> {
        let belief = self.believe();
        points.iter().map(|point| belief.at(point)).collect()
    }

    /// The standard deviation of one measurement of throughput, as a share of it.
    #[must_use]
    pub fn noise(&mut self) -> f64 {
        self.believe().shapes().0.noise
    }
}

/// The first points: the present setting, and corners of the space that tell the constants of the cost apart.
fn opening(space: &TuningSpace) -> Vec<TuningPoint> {
    let most = space.most_callers();
    let largest = space.settings.iter().map(|setting| setting.batch).max().unwrap_or(1);
    let at = |instances: u32, threads: u32, batch: u32, callers: u32| {
        let fits = |setting: &&TunedSetting| {
            let own =
                (setting.instances, setting.threads.unwrap_or(threads), setting.batch, setting.delay_us);
            own == (instances, threads, batch, 0)
        };
        space.settings.iter().find(fits).map(|&setting| TuningPoint { setting, callers })
    };
    let threads = space.settings.iter().filter_map(|setting| setting.threads).max().unwrap_or(1);
    let instances = space.processors;
    let middle = space.callers[space.callers.len() / 2];
    let present = TuningPoint { setting: space.present, callers: most };
    let corners = [
        Some(present),
        at(1, 1, largest, most),
        at(instances, 1, largest, most),
        at(1, threads, largest, middle),
        at(1, 1, 1, space.callers[0]),
    ];
    corners.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::space::SpaceLimits;
    use super::*;

    fn space() -> TuningSpace {
        let present = TunedSetting { instances: 2, threads: None, batch: 1, delay_us: 0 };
        let limits =
            SpaceLimits { processors: 2, batch: 4, has_threads: false, callers: vec![1, 8], present };
        TuningSpace::new(&limits)
    }

    fn sample(point: TuningPoint, rate: f64) -> TuningSample {
        TuningSample { point, rate, latency_ms: 1e3 * f64::from(point.callers) / rate, batches: Vec::new() }
    }

    #[test]
    fn a_sweep_measures_every_point_and_then_the_best_again() {
        let (space, mut first) = (space(), Vec::new());
        let mut search = Search::new(space.clone(), TuningGoal::Knee, SearchPlan::Exhaustive);
        for _ in 0..space.points().count() {
            let SearchStep::Measure(point) = search.next(1000) else { panic!("it ends too early") };
            first.push(point);
            search.record(sample(point, 100.0 * f64::from(point.setting.instances)));
        }
        first.sort_unstable();
        assert!(first.into_iter().eq(space.points()));
        let mut repeats = 0;
        while let SearchStep::Measure(point) = search.next(1000) {
            search.record(sample(point, 100.0 * f64::from(point.setting.instances)));
            repeats += 1;
            assert!(search.count(&point) > 1 && repeats < 100);
        }
        assert!(repeats > 0);
        assert_eq!(search.choice().expect("points were measured").0.setting.instances, 4);
    }

    #[test]
    fn a_point_that_fails_is_not_tried_again() {
        let mut search = Search::new(space(), TuningGoal::Knee, SearchPlan::Model);
        let mut seen = BTreeSet::new();
        while let SearchStep::Measure(point) = search.next(100) {
            assert!(seen.insert(point), "{point} was tried twice");
            search.record_failure(point);
        }
        assert_eq!(seen.len(), space().points().count());
        assert!(search.choice().is_none());
    }

    #[test]
    fn the_first_measurement_needs_no_more_time_than_its_own() {
        let mut search = Search::new(space(), TuningGoal::Knee, SearchPlan::Model);
        let SearchStep::Measure(point) = search.next(1) else { panic!("nothing is measured") };
        search.record(sample(point, 100.0));
        assert_eq!(search.choice().map(|(chosen, _)| chosen), Some(point));
    }

    #[test]
    fn without_time_it_is_enough() {
        let mut search = Search::new(space(), TuningGoal::Knee, SearchPlan::Model);
        assert_eq!(search.next(0), SearchStep::Enough);
    }

    #[test]
    fn of_equals_the_one_that_takes_least_wins() {
        let mut search = Search::new(space(), TuningGoal::Latency(1e9), SearchPlan::Model);
        for _ in 0..3 {
            for point in space().points().filter(|point| point.callers == 8) {
                search.record(sample(point, 100.0));
            }
        }
        let (chosen, _) = search.choice().expect("points were measured");
        let least = TunedSetting { instances: 1, threads: None, batch: 1, delay_us: 0 };
        assert_eq!(chosen.setting, least);
    }
}
