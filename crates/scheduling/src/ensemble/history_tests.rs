//! Random histories of random graphs, against an interpreter of lists.
//!
//! The interpreter evaluates the graph step by step: a tensor is the list of its values. It knows only what the steps
//! have sent so far, so that the test compares the steps in flight and the responses of the client after each event.
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use super::*;

/// As `SplitMix64`.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A value, and a counter of all values.
#[derive(Debug, Clone)]
struct Tracked {
    content: u64,
    _alive: Rc<()>,
}

/// What is known about an iteration of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Given(u64),
    Empty(u64),
    AbsentByStep,
    AbsentByClient,
    Missing,
    Unknown,
}

impl Item {
    fn content(self) -> Option<u64> {
        match self {
            Item::Given(content) | Item::Empty(content) => Some(content),
            _ => None,
        }
    }
}

/// The values of a tensor, and whether there are no others.
#[derive(Debug, Clone, Default)]
struct List {
    items: Vec<Item>,
    is_complete: bool,
}

/// The responses of an execution, and whether it has ended.
type Sent = (Vec<Vec<Item>>, bool);
type Response = Vec<(usize, u64)>;

#[derive(Debug, Default)]
struct Evaluation {
    tensors: Vec<List>,
    runs: BTreeMap<StepRun, Vec<Option<u64>>>,
    skipped: usize,
    missing: usize,
    responses: Vec<Response>,
}

/// The sets of values of the same iteration, and whether there are no others.
fn zip(lists: &[&List]) -> (Vec<Vec<Item>>, bool) {
    let longest = lists.iter().map(|list| list.items.len()).max().unwrap_or(0);
    let limit = lists.iter().filter(|list| list.is_complete).map(|list| list.items.len()).min();
    let length = longest.min(limit.unwrap_or(longest));
    let item = |list: &List, iteration| list.items.get(iteration).copied().unwrap_or(Item::Unknown);
    let row = |iteration| lists.iter().map(|list| item(list, iteration)).collect();
    ((0..length).map(row).collect(), limit.is_some_and(|limit| limit <= longest))
}

/// A graph and a request. Steps use tensors of `order`ed earlier steps only.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) graph: Arc<EnsembleGraph>,
    order: Vec<usize>,
    pub(super) inputs: Vec<Option<u64>>,
    requested: Vec<bool>,
    seed: u64,
}

impl Case {
    pub(super) fn random(random: &mut Random) -> Self {
        let inputs: Vec<_> = (0..1 + random.below(3)).collect();
        let mut tensors = inputs.len();
        let mut steps = Vec::new();
        let decoupled_in = if random.one_in(2) { usize::MAX } else { 2 };
        for _ in 0..1 + random.below(6) {
            let input = |random: &mut Random| {
                let distance = (0..3).map(|_| random.below(tensors)).min().unwrap_or(0);
                StepInput { tensor: tensors - 1 - distance, is_optional: random.one_in(2) }
            };
            let inputs = (0..1 + random.below(3)).map(|_| input(random)).collect();
            let outputs: Vec<_> = (0..1 + random.below(2)).map(|output| tensors + output).collect();
            tensors += outputs.len();
            steps.push(GraphStep { inputs, outputs, is_decoupled: random.one_in(decoupled_in) });
        }
        let output = |random: &mut Random| tensors - 1 - random.below(tensors).min(random.below(tensors));
        let outputs: BTreeSet<_> = (0..1 + random.below(3)).map(|_| output(random)).collect();
        let mut order: Vec<_> = (0..steps.len()).collect();
        for position in 0..order.len() {
            order.swap(position, position + random.below(steps.len() - position));
        }
        // The step at position `p` of the data flow has the index `order[p]`.
        let mut indexed = vec![GraphStep::default(); steps.len()];
        for (index, step) in order.iter().zip(steps) {
            indexed[*index] = step;
        }
        let graph = EnsembleGraph::new(tensors, inputs, outputs.into_iter().collect(), indexed);
        let give = |random: &mut Random| if random.one_in(4) { None } else { Some(random.next()) };
        Self {
            inputs: graph.inputs.iter().map(|_| give(random)).collect(),
            requested: graph.outputs.iter().map(|_| !random.one_in(4)).collect(),
            graph: Arc::new(graph),
            order,
            seed: random.next(),
        }
    }

    /// The model of a step is a function of its inputs: which responses it sends.
    fn model(&self, step: usize, inputs: &[Option<u64>]) -> Vec<Vec<Item>> {
        let mut random = Random(self.seed ^ (step as u64 + 1));
        for input in inputs {
            random = Random(random.next() ^ input.unwrap_or(7));
        }
        let graph_step = &self.graph.steps[step];
        let rarity = if self.seed.is_multiple_of(4) { 4 } else { 20 };
        let responses = match (graph_step.is_decoupled, random.below(rarity)) {
            (true, chance) => chance.min(random.below(5)),
            (false, 0) => 0,
            (false, 1) => 2,
            (false, _) => 1,
        };
        let output = |random: &mut Random| match random.below(6) {
            0 => Item::AbsentByStep,
            1 => Item::Empty(random.next()),
            _ => Item::Given(random.next()),
        };
        (0..responses).map(|_| graph_step.outputs.iter().map(|_| output(&mut random)).collect()).collect()
    }

    /// The steps that a requested output depends on.
    fn needed(&self) -> BTreeSet<usize> {
        let requested = self.graph.outputs.iter().zip(&self.requested);
        let mut tensors: BTreeSet<_> =
            requested.filter(|(_, is_requested)| **is_requested).map(|(tensor, _)| *tensor).collect();
        let mut needed = BTreeSet::new();
        for step in self.order.iter().rev() {
            if self.graph.steps[*step].outputs.iter().any(|output| tensors.contains(output)) {
                needed.insert(*step);
                tensors.extend(self.graph.steps[*step].inputs.iter().map(|input| input.tensor));
            }
        }
        needed
    }

    /// Evaluates the graph, if `sent` is what the steps have sent.
    fn evaluate(&self, sent: impl Fn(StepRun, &[Option<u64>]) -> Sent) -> Evaluation {
        let mut evaluation =
            Evaluation { tensors: vec![List::default(); self.graph.tensors], ..Evaluation::default() };
        for (tensor, value) in self.graph.inputs.iter().zip(&self.inputs) {
            let items = vec![value.map_or(Item::AbsentByClient, Item::Given)];
            evaluation.tensors[*tensor] = List { items, is_complete: true };
        }
        let needed = self.needed();
        for step in self.order.iter().filter(|step| needed.contains(step)) {
            self.evaluate_step(*step, &sent, &mut evaluation);
        }
        self.evaluate_responses(&mut evaluation);
        evaluation
    }

    fn evaluate_step(
        &self,
        step: usize,
        sent: impl Fn(StepRun, &[Option<u64>]) -> Sent,
        evaluation: &mut Evaluation,
    ) {
        let GraphStep { inputs, outputs, is_decoupled } = &self.graph.steps[step];
        let lists: Vec<_> = inputs.iter().map(|input| &evaluation.tensors[input.tensor]).collect();
        let (rows, mut is_complete) = zip(&lists);
        let mut results: Vec<Vec<Item>> = Vec::new();
        let mut is_open = false;
        for (iteration, row) in rows.into_iter().enumerate() {
            let run = StepRun { step, iteration: iteration as u64 };
            let by_step = row.iter().any(|item| matches!(item, Item::AbsentByStep | Item::Empty(_)));
            let has_nothing = inputs.iter().all(|input| input.is_optional)
                && !row.iter().any(|item| matches!(item, Item::Given(_)));
            let (responses, has_ended) = if row.contains(&Item::Missing) {
                evaluation.missing += 1;
                (vec![], true)
            } else if row.contains(&Item::Unknown) {
                (vec![], false)
            } else if by_step && has_nothing {
                evaluation.skipped += 1;
                let absent = vec![Item::AbsentByStep; outputs.len()];
                (if *is_decoupled { vec![] } else { vec![absent] }, true)
            } else {
                let contents: Vec<_> = row.iter().map(|item| item.content()).collect();
                let sent = sent(run, &contents);
                evaluation.runs.insert(run, contents);
                sent
            };
            if *is_decoupled {
                if !is_open {
                    results.extend(responses);
                    is_open = !has_ended;
                }
            } else {
                let unsent = if has_ended { Item::Missing } else { Item::Unknown };
                let first = responses.into_iter().next();
                results.push(first.unwrap_or_else(|| vec![unsent; outputs.len()]));
            }
        }
        is_complete &= !is_open;
        for (position, tensor) in outputs.iter().enumerate() {
            let items = results.iter().map(|result| result[position]).collect();
            evaluation.tensors[*tensor] = List { items, is_complete };
        }
    }

    fn evaluate_responses(&self, evaluation: &mut Evaluation) {
        let requested: Vec<_> = (0..self.requested.len()).filter(|output| self.requested[*output]).collect();
        if requested.is_empty() && !self.graph.is_decoupled() {
            evaluation.responses.push(vec![]);
        }
        let lists: Vec<_> =
            requested.iter().map(|output| &evaluation.tensors[self.graph.outputs[*output]]).collect();
        for row in zip(&lists).0 {
            if row.contains(&Item::Missing) {
                continue;
            }
            if row.contains(&Item::Unknown) {
                break;
            }
            let values = requested.iter().zip(row);
            let response = values.filter_map(|(output, item)| Some((*output, item.content()?)));
            evaluation.responses.push(response.collect());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    LastResponse,
    Finish,
    Deadlock,
    Fail(usize),
}

/// What a step in flight still sends.
struct InFlight {
    run: StepRun,
    unsent: Vec<Vec<Item>>,
}

/// A case while it runs.
struct History<'a> {
    case: &'a Case,
    run: EnsembleRun<Tracked, usize>,
    alive: Rc<()>,
    in_flight: Vec<InFlight>,
    /// What each execution has sent.
    sent: BTreeMap<StepRun, Sent>,
    started: BTreeMap<StepRun, Vec<Option<u64>>>,
    responses: Vec<Response>,
    error: Option<usize>,
    end: Option<End>,
}

impl<'a> History<'a> {
    fn new(case: &'a Case) -> Self {
        let alive = Rc::new(());
        let inputs = case.inputs.iter().map(|input| input.map(|content| tracked(&alive, content))).collect();
        let run = EnsembleRun::new(Arc::clone(&case.graph), inputs, |output| case.requested[output]);
        Self {
            case,
            run,
            alive,
            in_flight: Vec::new(),
            sent: BTreeMap::new(),
            started: BTreeMap::new(),
            responses: Vec::new(),
            error: None,
            end: None,
        }
    }

    /// Calls `next` until there is nothing to do, or sometimes less often. `all`: every step may start.
    fn act(&mut self, random: &mut Random, all: bool) {
        let is_patient = !all && random.one_in(3);
        let mut last_start = None;
        let mut has_responded = false;
        loop {
            let mut asked = Vec::new();
            let mut is_granted = false;
            let action = self.run.next(|step| {
                assert!(
                    !is_granted && !asked.contains(&step),
                    "step {step} is asked for once, until one may start"
                );
                asked.push(step);
                is_granted = all || random.one_in(2);
                is_granted
            });
            let Some(action) = action else {
                assert!(!is_granted);
                break;
            };
            assert_eq!(self.end, None, "nothing comes after the end");
            assert_eq!(is_granted, matches!(action, EnsembleAction::Start { .. }), "what may start starts");
            match action {
                EnsembleAction::Start { run, inputs } => {
                    assert_eq!(self.error, None, "nothing starts after an error");
                    assert_eq!(asked.last(), Some(&run.step));
                    assert!(!all || last_start < Some(run), "starts are in order");
                    last_start = Some(run);
                    let inputs: Vec<_> =
                        inputs.into_iter().map(|value| value.map(|value| value.content)).collect();
                    let unsent = self.case.model(run.step, &inputs);
                    assert_eq!(self.started.insert(run, inputs), None, "an execution starts once");
                    self.in_flight.push(InFlight { run, unsent });
                }
                EnsembleAction::Respond { outputs, is_last } => {
                    assert!(!is_last || !self.case.graph.is_decoupled() || self.in_flight.is_empty());
                    has_responded = true;
                    let outputs = outputs.into_iter().map(|(output, value)| (output, value.content));
                    self.responses.push(outputs.collect());
                    self.end = is_last.then_some(End::LastResponse);
                }
                EnsembleAction::Finish => {
                    assert!(!has_responded, "the last response was not marked");
                    self.end = Some(End::Finish);
                }
                EnsembleAction::Deadlock => self.end = Some(End::Deadlock),
                EnsembleAction::Fail(error) => self.end = Some(End::Fail(error)),
            }
            assert_eq!(self.run.is_over(), self.end.is_some());
            if is_patient {
                break;
            }
        }
    }

    /// One event, and sometimes one that makes no sense.
    fn event(&mut self, random: &mut Random, fails_in: usize) {
        if random.one_in(fails_in) {
            self.fail(random.below(1000));
        }
        if random.one_in(20) {
            self.nonsense(random);
        }
        let position = random.below(self.in_flight.len());
        let InFlight { run, unsent } = &mut self.in_flight[position];
        let run = *run;
        if !unsent.is_empty() {
            let outputs = unsent.remove(0);
            let is_last = unsent.is_empty();
            self.sent.entry(run).or_default().0.push(outputs.clone());
            let value = |item| match item {
                Item::Given(content) => TensorValue::Given(tracked(&self.alive, content)),
                Item::Empty(content) => TensorValue::Empty(tracked(&self.alive, content)),
                _ => TensorValue::Absent,
            };
            let outputs = outputs.into_iter().map(value).collect();
            self.run.responded(run, outputs);
            if !(is_last && random.one_in(2)) {
                return;
            }
        }
        self.in_flight.swap_remove(position);
        self.sent.entry(run).or_default().1 = true;
        self.run.ended(run);
    }

    fn fail(&mut self, error: usize) {
        self.run.failed(error);
        if self.end.is_none() {
            self.error = self.error.or(Some(error));
            assert_eq!(self.run.held(), 0, "an error drops all values at once");
            assert_eq!(self.run.iterations(), 0);
        }
    }

    /// Events of an execution that is not in flight.
    fn nonsense(&mut self, random: &mut Random) {
        let step = random.below(self.case.graph.steps.len());
        let run = StepRun { step, iteration: random.below(4) as u64 };
        if self.in_flight.iter().all(|in_flight| in_flight.run != run) {
            let outputs = &self.case.graph.steps[step].outputs;
            let values = outputs.iter().map(|_| TensorValue::Given(tracked(&self.alive, 13))).collect();
            self.run.responded(run, values);
            self.run.ended(run);
        }
    }

    /// Compares with what follows from the events so far. `all`: every step was allowed to start.
    fn check(&self, all: bool) {
        assert_eq!(self.run.held(), Rc::strong_count(&self.alive) - 1, "each value is counted");
        assert_eq!(self.run.running(), self.in_flight.len());
        if self.error.is_some() || self.end.is_some() {
            return;
        }
        let expected = self.case.evaluate(|run, _| self.sent.get(&run).cloned().unwrap_or_default());
        if all {
            assert_eq!(self.started, expected.runs);
            assert_eq!(self.responses, expected.responses);
        }
    }

    /// Compares with the evaluation of the whole graph.
    fn check_end(&self, whole: &Evaluation) {
        let end = self.end.expect("the request has an end");
        assert_eq!(self.run.held(), 0);
        assert_eq!(Rc::strong_count(&self.alive), 1, "all values are dropped");
        assert_eq!(self.run.iterations(), 0, "all memory is free");
        assert_eq!(self.run.running(), 0);
        assert_eq!(matches!(end, End::Fail(_)), self.error.is_some());
        if let Some(error) = self.error {
            assert_eq!(end, End::Fail(error), "the first error decides");
            assert!(whole.responses.starts_with(&self.responses));
            assert!(self.started.iter().all(|(run, inputs)| whole.runs.get(run) == Some(inputs)));
            return;
        }
        assert_eq!(self.responses, whole.responses);
        assert_eq!(self.started, whole.runs);
        if self.case.graph.is_decoupled() {
            assert!(matches!(end, End::Finish | End::LastResponse));
        } else {
            let expected = if whole.responses.is_empty() { End::Deadlock } else { End::LastResponse };
            assert_eq!(end, expected);
        }
    }
}

fn tracked(alive: &Rc<()>, content: u64) -> Tracked {
    Tracked { content, _alive: Rc::clone(alive) }
}

/// How often something happened that the test is about.
#[derive(Debug, Default)]
struct Coverage {
    skipped: usize,
    missing: usize,
    several_responses: usize,
    last_responses_of_decoupled: usize,
    finishes: usize,
    deadlocks: usize,
    failures: usize,
    failures_after_responses: usize,
}

impl Coverage {
    fn add(&mut self, history: &History<'_>, whole: &Evaluation) {
        let is_decoupled = history.case.graph.is_decoupled();
        self.skipped += usize::from(whole.skipped > 0);
        self.missing += usize::from(whole.missing > 0);
        self.several_responses += usize::from(history.responses.len() > 1);
        self.last_responses_of_decoupled +=
            usize::from(is_decoupled && history.end == Some(End::LastResponse));
        self.finishes += usize::from(history.end == Some(End::Finish));
        self.deadlocks += usize::from(history.end == Some(End::Deadlock));
        self.failures += usize::from(history.error.is_some());
        self.failures_after_responses +=
            usize::from(history.error.is_some() && !history.responses.is_empty());
    }

    fn least(&self) -> usize {
        let counts = [
            self.skipped,
            self.missing,
            self.several_responses,
            self.last_responses_of_decoupled,
            self.finishes,
            self.deadlocks,
            self.failures,
            self.failures_after_responses,
        ];
        counts.into_iter().min().unwrap_or(0)
    }
}

fn play(seed: u64, coverage: &mut Coverage) {
    let mut random = Random(seed);
    let case = Case::random(&mut random);
    let whole = case.evaluate(|run, inputs| (case.model(run.step, inputs), true));
    let fails_in = if random.one_in(4) { 4 + random.below(20) } else { usize::MAX };
    let is_limited = random.one_in(2);
    let mut history = History::new(&case);
    if random.one_in(50) {
        history.fail(1);
    }
    while history.end.is_none() || !history.in_flight.is_empty() {
        let all = !is_limited || history.in_flight.is_empty() || random.one_in(4);
        history.act(&mut random, all);
        history.check(all);
        if history.in_flight.is_empty() {
            assert!(history.end.is_some(), "the request waits for nothing");
            continue;
        }
        for _ in 0..1 + random.below(2) {
            if !history.in_flight.is_empty() {
                history.event(&mut random, fails_in);
            }
        }
    }
    history.act(&mut random, true);
    history.check_end(&whole);
    coverage.add(&history, &whole);
}

#[test]
fn random_graphs_give_what_an_evaluation_of_lists_gives() {
    let mut coverage = Coverage::default();
    for seed in 0..8_000 {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(seed, &mut coverage)));
        if let Err(panic) = played {
            eprintln!("seed {seed}: {:#?}", Case::random(&mut Random(seed)));
            std::panic::resume_unwind(panic);
        }
    }
    assert!(coverage.least() >= 25, "the test does not reach everything: {coverage:#?}");
}
