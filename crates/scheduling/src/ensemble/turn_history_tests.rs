//! Random histories of many requests of few sequences through random graphs: each step that keeps order is started in the
//! order of arrival, whatever ends when, and every request ends.
use std::collections::{BTreeMap, VecDeque};

use super::{
    history_tests::{Case, Random},
    *,
};

const HISTORIES: u64 = 3_000;
const REQUESTS: usize = 12;
const SEQUENCES: usize = 2;

struct Request {
    sequence: usize,
    run: EnsembleRun<u64, ()>,
    running: Vec<StepRun>,
    place: Option<TurnPlace<usize>>,
}

struct History {
    random: Random,
    case: Case,
    /// The steps that keep order.
    ordered: Vec<bool>,
    repeated: Vec<bool>,
    turns: SequenceTurns<usize, usize>,
    requests: Vec<Request>,
    /// For each sequence and step, the numbers of the requests that have started it.
    starts: BTreeMap<(usize, StepIndex), Vec<usize>>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let case = Case::random(&mut random);
        let ordered = case.graph.steps.iter().map(|_| random.one_in(2)).collect();
        let (repeated, turns) = (case.graph.repeated_steps(), SequenceTurns::new(case.graph.steps.len()));
        Self { random, case, ordered, repeated, turns, requests: Vec::new(), starts: BTreeMap::new() }
    }

    fn arrive(&mut self) {
        let (number, sequence) = (self.requests.len(), self.random.below(SEQUENCES));
        let run = EnsembleRun::new(self.case.graph.clone(), self.case.inputs.clone(), |_| true);
        let place = Some(self.turns.enter(sequence, number));
        self.requests.push(Request { sequence, run, running: Vec::new(), place });
        self.act(number);
    }

    /// Lets a request do what it can, and then those whose turns come by that.
    fn act(&mut self, number: usize) {
        let mut awake = VecDeque::from([number]);
        while let Some(number) = awake.pop_front() {
            let (turns, request) = (&mut self.turns, &mut self.requests[number]);
            while let Some(place) = &request.place {
                let action = request.run.next(|step| !self.ordered[step] || turns.may_start(place, step));
                match action {
                    None => break,
                    Some(EnsembleAction::Start { run, .. }) => {
                        request.running.push(run);
                        if self.ordered[run.step] {
                            self.starts.entry((request.sequence, run.step)).or_default().push(number);
                            if !self.repeated[run.step] {
                                awake.extend(turns.started(place, run.step));
                            }
                        }
                    }
                    Some(EnsembleAction::Respond { is_last: false, .. }) => {}
                    Some(_) => {
                        awake.extend(turns.leave(place));
                        request.place = None;
                    }
                }
            }
        }
    }

    /// Something happens to a request whose steps run.
    fn event(&mut self, number: usize) {
        let request = &mut self.requests[number];
        if self.random.one_in(20) {
            request.run.failed(());
        } else {
            let run = request.running.swap_remove(self.random.below(request.running.len()));
            let step = &self.case.graph.steps[run.step];
            let responses = if step.is_decoupled { self.random.below(4) } else { 1 };
            for value in 0..responses {
                let outputs = step.outputs.iter().map(|_| TensorValue::Given(value as u64)).collect();
                request.run.responded(run, outputs);
            }
            request.run.ended(run);
        }
        self.act(number);
    }

    fn run(mut self) {
        let mut left = REQUESTS;
        loop {
            let busy: Vec<_> = (0..self.requests.len())
                .filter(|number| {
                    let request = &self.requests[*number];
                    request.place.is_some() && !request.running.is_empty()
                })
                .collect();
            if left > 0 && (busy.is_empty() || self.random.one_in(3)) {
                left -= 1;
                self.arrive();
            } else if busy.is_empty() {
                break;
            } else {
                let number = busy[self.random.below(busy.len())];
                self.event(number);
            }
        }
        let open = self.requests.iter().filter(|request| request.place.is_some()).count();
        assert_eq!((open, self.turns.sequences()), (0, 0), "every request ends");
        for ((sequence, step), numbers) in self.starts {
            assert!(numbers.is_sorted(), "sequence {sequence}, step {step}: {numbers:?}");
        }
    }
}

#[test]
fn requests_of_a_sequence_start_each_ordered_step_in_the_order_of_their_arrival() {
    for seed in 0..HISTORIES {
        println!("seed {seed}");
        History::new(seed).run();
    }
}
