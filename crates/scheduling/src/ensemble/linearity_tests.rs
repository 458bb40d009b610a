//! The work for a request is proportional to the number of its iterations, in whatever order events come, and memory
//! of iterations that are over is free.
use std::sync::Arc;

use super::*;
use crate::cost_counter;

/// How many times more iterations the larger run has.
const FACTOR: u64 = 10;

/// A decoupled step makes numbers; each one runs through two plain steps, and then through a decoupled one.
fn graph() -> Arc<EnsembleGraph> {
    let step = |inputs: &[TensorIndex], output, is_decoupled| GraphStep {
        inputs: inputs.iter().map(|tensor| StepInput { tensor: *tensor, is_optional: true }).collect(),
        outputs: vec![output],
        is_decoupled,
    };
    let steps = vec![
        step(&[0], 1, true),
        step(&[1], 2, false),
        step(&[1], 3, false),
        step(&[2, 3], 4, true),
        step(&[4, 1], 5, false),
    ];
    Arc::new(EnsembleGraph::new(6, vec![0], vec![5, 1], steps))
}

struct Stream {
    run: EnsembleRun<u64, ()>,
    responses: u64,
    is_over: bool,
}

impl Stream {
    fn new() -> Self {
        let mut stream =
            Self { run: EnsembleRun::new(graph(), vec![Some(0)], |_| true), responses: 0, is_over: false };
        stream.act(|_| true);
        stream
    }

    fn act(&mut self, mut may_start: impl FnMut(usize) -> bool) {
        while let Some(action) = self.run.next(&mut may_start) {
            match action {
                EnsembleAction::Start { .. } => {}
                EnsembleAction::Respond { is_last, .. } => {
                    self.responses += 1;
                    self.is_over |= is_last;
                }
                EnsembleAction::Finish => self.is_over = true,
                EnsembleAction::Deadlock | EnsembleAction::Fail(()) => panic!("the stream fails"),
            }
        }
    }

    fn produce(&mut self, may_start: impl FnMut(usize) -> bool) {
        self.run.responded(StepRun { step: 0, iteration: 0 }, vec![TensorValue::Given(1)]);
        self.act(may_start);
    }

    fn answer(&mut self, step: usize, iteration: u64, value: TensorValue<u64>) {
        self.run.responded(StepRun { step, iteration }, vec![value]);
        self.run.ended(StepRun { step, iteration });
        self.act(|_| true);
    }

    fn finish(mut self, responses: u64) {
        self.run.ended(StepRun { step: 0, iteration: 0 });
        self.act(|_| true);
        assert!(self.is_over, "the stream ends");
        assert_eq!(self.responses, responses);
        assert_eq!(self.run.iterations(), 0);
    }
}

/// Every iteration is over before the next one begins.
fn one_by_one(count: u64) {
    let mut stream = Stream::new();
    let mut after_first = None;
    for iteration in 0..count {
        stream.produce(|_| true);
        (1..=4).for_each(|step| stream.answer(step, iteration, TensorValue::Given(1)));
        assert_eq!(stream.run.held(), 0);
        let iterations = stream.run.iterations();
        assert_eq!(
            *after_first.get_or_insert(iterations),
            iterations,
            "an iteration that is over takes memory"
        );
    }
    stream.finish(count);
}

/// All values come before the first answer.
fn all_at_once(count: u64, answered: impl Iterator<Item = u64> + Clone, value: TensorValue<u64>) {
    let mut stream = Stream::new();
    (0..count).for_each(|_| stream.produce(|_| true));
    for step in [2, 1] {
        answered.clone().for_each(|iteration| stream.answer(step, iteration, value));
    }
    // If the value is without elements, steps 3 and 4 are skipped or have no inputs.
    if matches!(value, TensorValue::Given(_)) {
        answered.clone().for_each(|iteration| stream.answer(3, iteration, value));
        answered.for_each(|iteration| stream.answer(4, iteration, value));
        stream.finish(count);
    } else {
        stream.finish(0);
    }
}

/// All steps but the first wait for other requests.
fn blocked(count: u64) {
    let mut stream = Stream::new();
    (0..count).for_each(|_| stream.produce(|_| false));
    stream.act(|_| true);
    for step in [1, 2, 3, 4] {
        (0..count).for_each(|iteration| stream.answer(step, iteration, TensorValue::Given(1)));
    }
    stream.finish(count);
}

fn is_linear(few: u64, work: impl Fn(u64)) {
    let [small, large] = [few, few * FACTOR].map(|count| cost_counter::of(|| work(count)));
    assert!(small >= few, "the work is counted: {small}");
    assert!(
        large <= small * FACTOR + few,
        "{few} iterations take {small} steps, {FACTOR} times as many {large}"
    );
}

#[test]
fn iterations_one_after_the_other_take_linear_work_and_constant_memory() {
    is_linear(10_000, one_by_one);
}

#[test]
fn iterations_that_are_answered_in_order_take_linear_work() {
    is_linear(2_000, |count| all_at_once(count, 0..count, TensorValue::Given(1)));
}

#[test]
fn iterations_that_are_answered_in_reverse_take_linear_work() {
    is_linear(2_000, |count| all_at_once(count, (0..count).rev(), TensorValue::Given(1)));
}

#[test]
fn skipped_iterations_take_linear_work() {
    is_linear(2_000, |count| all_at_once(count, (0..count).rev(), TensorValue::Absent));
}

#[test]
fn iterations_that_wait_for_a_limit_take_linear_work() {
    is_linear(2_000, blocked);
}
