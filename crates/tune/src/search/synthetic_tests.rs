//! The search against made-up machines whose cost is not that of the model, with noise.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// A machine whose cost the model of the search cannot express.
struct Machine {
    batch_ms: f64,
    row_ms: f64,
    /// Rows above this cost more: they leave the cache.
    cache_rows: f64,
    cache_factor: f64,
    parallel: f64,
    /// What a second thread of the same processor still gives.
    sharing: f64,
    /// What each further instance costs all of them.
    interference: f64,
    request_ms: f64,
    tail: f64,
    processors: f64,
    noise: f64,
}

impl Machine {
    fn random(random: &mut StdRng) -> Machine {
        let mut log = |low: f64, high: f64| (random.random_range(low.ln()..high.ln())).exp();
        let row_ms = log(0.02, 5.0);
        Machine {
            batch_ms: row_ms * log(0.1, 10.0),
            row_ms,
            cache_rows: log(4.0, 64.0),
            cache_factor: log(1.0, 1.8),
            parallel: log(0.3, 0.95),
            sharing: log(0.05, 0.4),
            interference: log(0.005, 0.15),
            request_ms: row_ms * log(0.02, 0.5),
            tail: log(1.2, 2.5),
            processors: [2.0, 4.0, 8.0][random.random_range(0..3)],
            noise: log_of(random),
        }
    }

    fn rows(&self, rows: f64) -> f64 {
        rows + (rows - self.cache_rows).max(0.0) * (self.cache_factor - 1.0)
    }

    /// Requests per second and milliseconds, without noise.
    fn truth(&self, point: &TuningPoint) -> (f64, f64) {
        let setting = &point.setting;
        let (callers, threads) = (f64::from(point.callers), f64::from(setting.threads.unwrap()));
        let delayed = setting.delay_us > 0;
        let mut instances = f64::from(setting.instances).min(callers);
        let share = if delayed { callers } else { callers / instances };
        let rows = share.clamp(1.0, f64::from(setting.batch)).floor();
        instances = instances.min(callers / rows).max(1.0);
        let speed = 1.0 / (1.0 - self.parallel + self.parallel / threads);
        let demand = instances * speed;
        let room = self.processors + self.sharing * (demand - self.processors).clamp(0.0, self.processors);
        let slow = (demand / room).max(1.0) * (1.0 + self.interference * (instances - 1.0));
        let idle = if delayed && callers < f64::from(setting.batch) {
            f64::from(setting.delay_us) / 1e3
        } else {
            0.0
        };
        let time =
            (self.batch_ms + self.row_ms * self.rows(rows)) / speed * slow + idle + self.request_ms * rows;
        let rate = 1e3 * (instances * rows / time).min(1.0 / self.request_ms * self.processors / 2.0);
        (rate, 1e3 * callers / rate * (1.0 + (self.tail - 1.0) * (1.0 - 1.0 / callers)))
    }

    fn measure(&self, point: TuningPoint, random: &mut StdRng) -> TuningSample {
        let (rate, latency) = self.truth(&point);
        let mut noise = |size: f64| (1..=6).map(|_| random.random_range(-size..size)).sum::<f64>() / 1.4;
        let (rate, latency_ms) = (rate * noise(self.noise).exp(), latency * noise(2.0 * self.noise).exp());
        TuningSample { point, rate, latency_ms, batches: Vec::new() }
    }
}

fn log_of(random: &mut StdRng) -> f64 {
    random.random_range(0.005..0.04)
}

fn space(processors: u32) -> TuningSpace {
    TuningSpace::new(&SpaceLimits {
        processors,
        batch: 32,
        has_threads: true,
        callers: powers(64),
        present: TunedSetting { instances: 2, threads: Some(1), batch: 4, delay_us: 0 },
    })
}

/// Noise hides whether a limit is kept that is nearer than this share. The optimum must keep it by so much, and the choice
/// may miss it by so much.
const BLUR: f64 = 0.03;

/// Runs a search. Returns how much of the optimum its choice has, and how many measurements it took.
fn run(seed: u64, goal: impl Fn(&Machine) -> TuningGoal, most: usize) -> (f64, usize) {
    let mut random = StdRng::seed_from_u64(seed);
    let machine = Machine::random(&mut random);
    let space = space(machine.processors as u32);
    let goal = goal(&machine);
    let certain = |point: &TuningPoint| {
        let (rate, latency) = machine.truth(point);
        Estimate { rate: rate.ln(), rate_sd: 0.0, latency: latency.ln(), latency_sd: 0.0 }
    };
    let optimum = space.points().map(|point| certain(&point)).fold(f64::MIN, |best, estimate| {
        let is_kept = goal.margin(&estimate).is_none_or(|(margin, _)| margin >= BLUR);
        if is_kept { best.max(goal.worth(&estimate).0) } else { best }
    });
    let mut search = Search::new(space, goal, SearchPlan::Model);
    while let SearchStep::Measure(point) = search.next(most - search.samples().len()) {
        search.record(machine.measure(point, &mut random));
    }
    let (chosen, _) = search.choice().expect("something was measured");
    let chosen = certain(&chosen);
    let is_missed = goal.margin(&chosen).is_some_and(|(margin, _)| margin < -BLUR);
    let kept = if is_missed { f64::MIN } else { goal.worth(&chosen).0 };
    ((kept - optimum).exp(), search.samples().len())
}

fn check(name: &str, goal: impl Fn(&Machine) -> TuningGoal + Copy) {
    const SEEDS: u64 = 40;
    let results: Vec<_> = (0..SEEDS).map(|seed| (seed, run(seed, goal, 60))).collect();
    let bad: Vec<_> = results.iter().filter(|(_, (share, _))| *share < 0.95).collect();
    let mean = results.iter().map(|(_, (_, count))| *count).sum::<usize>() as f64 / SEEDS as f64;
    println!("{name}: {} of {SEEDS} bad, {mean} measurements: {bad:?}", bad.len());
    assert!(bad.len() as u64 * 20 <= SEEDS, "{name}: more than 5 % of the choices are bad: {bad:?}");
}

#[test]
fn the_knee_is_within_5_percent_of_the_optimum() {
    check("knee", |_| TuningGoal::Knee);
}

#[test]
fn throughput_under_a_latency_is_within_5_percent_of_the_optimum() {
    check("latency", |machine| {
        let space = space(machine.processors as u32);
        let least = space.points().map(|point| machine.truth(&point).1).fold(f64::MAX, f64::min);
        TuningGoal::Latency(least * 8.0)
    });
}

#[test]
fn throughput_without_a_real_limit_is_within_5_percent_of_the_optimum() {
    check("most", |_| TuningGoal::Latency(1e9));
}

#[test]
fn latency_at_a_throughput_is_within_5_percent_of_the_optimum() {
    check("throughput", |machine| {
        let space = space(machine.processors as u32);
        let most = space.points().map(|point| machine.truth(&point).0).fold(0.0, f64::max);
        TuningGoal::Throughput(most * 0.6)
    });
}
