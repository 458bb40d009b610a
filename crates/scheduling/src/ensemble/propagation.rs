//! Passes settled values to their consumers, and finds the steps that can start and the responses that are complete.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    EnsembleGraph, StepIndex, StepRun, TensorIndex, TensorValue,
    iteration_join::{IterationJoin, JoinOutcome},
    iteration_order::IterationOrder,
    needs::{NeededGraph, TensorConsumer},
    value::{SettledValue, is_skipped},
};

/// The values of a request on their way through the needed part of the graph.
#[derive(Debug)]
pub(super) struct Propagation<V> {
    graph: Arc<EnsembleGraph>,
    needed: Arc<NeededGraph>,
    consumers: ConsumerStates<V>,
    /// The values that their consumers do not have yet. Empty between events.
    settled: VecDeque<(TensorIndex, u64, SettledValue<V>)>,
}

/// What consumers have received.
#[derive(Debug)]
struct ConsumerStates<V> {
    steps: Vec<StepState<V>>,
    client: ClientState<V>,
    /// The executions that can start, with their inputs.
    ready: BTreeMap<StepRun, Vec<Option<V>>>,
}

#[derive(Debug)]
struct StepState<V> {
    inputs: IterationJoin<V>,
    /// The responses of a decoupled step; each is in the order of the step's outputs.
    responses: IterationOrder<Vec<TensorValue<V>>>,
    /// The number of iterations that a decoupled step has added to its outputs.
    produced: u64,
}

#[derive(Debug)]
struct ClientState<V> {
    /// The requested outputs, as positions in the outputs of the graph.
    requested: Vec<usize>,
    outputs: IterationJoin<V>,
    order: IterationOrder<Vec<(usize, V)>>,
    /// The responses that the client may receive now.
    responses: VecDeque<Vec<(usize, V)>>,
}

impl<V: Clone> Propagation<V> {
    /// `requested` are positions in the outputs of the graph.
    pub(super) fn new(graph: Arc<EnsembleGraph>, inputs: Vec<Option<V>>, requested: Vec<usize>) -> Self {
        let tensors: Vec<_> = requested.iter().map(|position| graph.outputs[*position]).collect();
        let needed = if requested.len() == graph.outputs.len() {
            graph.needed_for_all.clone()
        } else {
            Arc::new(graph.needed(&tensors))
        };
        let step = |step: &super::GraphStep| {
            let has_one_iteration = needed.is_one_iteration(step.inputs.iter().map(|input| input.tensor));
            let inputs = IterationJoin::new(step.inputs.len(), has_one_iteration);
            StepState { inputs, responses: IterationOrder::new(), produced: 0 }
        };
        let steps = graph.steps.iter().map(step).collect();
        let client = ClientState::new(requested, &needed, &tensors, graph.is_decoupled());
        let consumers = ConsumerStates { steps, client, ready: BTreeMap::new() };
        debug_assert_eq!(graph.inputs.len(), inputs.len(), "the client gives or leaves out each input");
        let settled =
            graph.inputs.iter().zip(inputs).map(|(tensor, value)| {
                (*tensor, 0, value.map_or(SettledValue::NotSent, SettledValue::Given))
            });
        let settled = settled.collect();
        let mut propagation = Self { graph, needed, consumers, settled };
        propagation.deliver_all();
        propagation
    }

    /// A step has sent a response. Only decoupled steps send more than one.
    pub(super) fn responded(&mut self, run: StepRun, outputs: Vec<TensorValue<V>>) {
        let step = &self.graph.steps[run.step];
        debug_assert_eq!(step.outputs.len(), outputs.len(), "a response has or leaves out each output");
        if step.is_decoupled {
            self.advance(run.step, |responses, release| responses.push(run.iteration, outputs, release));
        } else {
            self.settled.extend(
                step.outputs
                    .iter()
                    .zip(outputs)
                    .map(|(tensor, value)| (*tensor, run.iteration, value.into())),
            );
        }
        self.deliver_all();
    }

    /// A step has ended. `has_responded`: it has sent a response.
    pub(super) fn ended(&mut self, run: StepRun, has_responded: bool) {
        if self.graph.steps[run.step].is_decoupled || !has_responded {
            self.give_nothing(run, &SettledValue::Missing);
        }
        self.deliver_all();
    }

    /// Takes the inputs of an execution that can start.
    pub(super) fn take_inputs(&mut self, run: StepRun) -> Option<Vec<Option<V>>> {
        self.consumers.ready.remove(&run)
    }

    /// Takes the next response for the client.
    pub(super) fn take_response(&mut self) -> Option<Vec<(usize, V)>> {
        self.consumers.client.responses.pop_front()
    }

    fn deliver_all(&mut self) {
        while let Some((tensor, iteration, value)) = self.settled.pop_front() {
            let Some((last, others)) = self.needed.consumers[tensor].split_last() else { continue };
            let mut skipped_or_missing = Vec::new();
            for consumer in others {
                let unanswered = self.consumers.deliver(&self.graph, *consumer, iteration, value.clone());
                skipped_or_missing.extend(unanswered);
            }
            skipped_or_missing.extend(self.consumers.deliver(&self.graph, *last, iteration, value));
            for (run, outputs) in skipped_or_missing {
                self.give_nothing(run, &outputs);
            }
        }
    }

    /// An execution gives no further responses. `outputs` is what a step that is not decoupled gives instead.
    fn give_nothing(&mut self, run: StepRun, outputs: &SettledValue<V>) {
        let step = &self.graph.steps[run.step];
        if step.is_decoupled {
            self.advance(run.step, |responses, release| responses.end(run.iteration, release));
        } else {
            let outputs = step.outputs.iter().map(|tensor| (*tensor, run.iteration, outputs.clone()));
            self.settled.extend(outputs);
        }
    }

    /// Changes the responses of a decoupled step. Each response that leaves adds an iteration to the outputs.
    fn advance(
        &mut self,
        step: StepIndex,
        change: impl FnOnce(&mut IterationOrder<Vec<TensorValue<V>>>, &mut dyn FnMut(Vec<TensorValue<V>>)),
    ) {
        let StepState { responses, produced, .. } = &mut self.consumers.steps[step];
        let tensors = &self.graph.steps[step].outputs;
        let settled = &mut self.settled;
        change(responses, &mut |outputs| {
            let values = tensors.iter().zip(outputs);
            settled.extend(values.map(|(tensor, value)| (*tensor, *produced, value.into())));
            *produced += 1;
        });
    }
}

impl<V> Propagation<V> {
    /// The first execution that can start, of this step or a later one.
    pub(super) fn first_ready(&self, step: StepIndex) -> Option<StepRun> {
        self.consumers.ready.range(StepRun { step, iteration: 0 }..).next().map(|(run, _)| *run)
    }

    pub(super) fn has_responses(&self) -> bool {
        !self.consumers.client.responses.is_empty()
    }

    pub(super) fn is_decoupled(&self) -> bool {
        self.graph.is_decoupled()
    }

    pub(super) fn is_step_decoupled(&self, step: StepIndex) -> bool {
        self.graph.steps[step].is_decoupled
    }

    /// Drops all values.
    pub(super) fn clear(&mut self) {
        let ConsumerStates { steps, client, ready } = &mut self.consumers;
        for step in steps {
            step.inputs.clear();
            step.responses = IterationOrder::new();
        }
        client.outputs.clear();
        client.order = IterationOrder::new();
        client.responses.clear();
        ready.clear();
    }

    /// The number of values, once for each consumer that waits for them.
    pub(super) fn held(&self) -> usize {
        let ConsumerStates { steps, client, ready } = &self.consumers;
        let of_step = |step: &StepState<V>| {
            let responses = step.responses.held().flatten();
            step.inputs.held() + responses.filter(|value| !matches!(value, TensorValue::Absent)).count()
        };
        steps.iter().map(of_step).sum::<usize>()
            + ready.values().flatten().flatten().count()
            + client.outputs.held()
            + client.order.held().chain(&client.responses).map(Vec::len).sum::<usize>()
    }

    /// The number of iterations that take memory, in all places.
    #[cfg(test)]
    pub(super) fn iterations(&self) -> usize {
        let ConsumerStates { steps, client, ready } = &self.consumers;
        steps.iter().map(|step| step.inputs.pending() + step.responses.open()).sum::<usize>()
            + ready.len()
            + client.outputs.pending()
            + client.order.open()
            + client.responses.len()
    }
}

impl<V> ConsumerStates<V> {
    /// Gives a consumer a value. Returns the execution that does not take place because of it, and what stands for its
    /// outputs.
    fn deliver(
        &mut self,
        graph: &EnsembleGraph,
        consumer: TensorConsumer,
        iteration: u64,
        value: SettledValue<V>,
    ) -> Option<(StepRun, SettledValue<V>)> {
        let (step, position) = match consumer {
            TensorConsumer::Step { step, position } => (step, position),
            TensorConsumer::Client { position } => {
                self.client.settle(iteration, position, value);
                return None;
            }
        };
        let run = StepRun { step, iteration };
        match self.steps[step].inputs.settle(iteration, position, value) {
            JoinOutcome::Waiting => None,
            JoinOutcome::Missing => Some((run, SettledValue::Missing)),
            JoinOutcome::Complete(values) if is_skipped(&graph.steps[step], &values) => {
                Some((run, SettledValue::Absent))
            }
            JoinOutcome::Complete(values) => {
                self.ready.insert(run, values.into_iter().map(SettledValue::into_value).collect());
                None
            }
        }
    }
}

impl<V> ClientState<V> {
    fn new(requested: Vec<usize>, needed: &NeededGraph, tensors: &[TensorIndex], is_decoupled: bool) -> Self {
        let has_one_iteration = needed.is_one_iteration(tensors.iter().copied());
        let outputs = IterationJoin::new(requested.len(), has_one_iteration);
        // A client that requests nothing still gets the one response of an ensemble that is not decoupled.
        let is_answered = requested.is_empty() && !is_decoupled;
        let responses = is_answered.then(Vec::new).into_iter().collect();
        Self { requested, outputs, order: IterationOrder::new(), responses }
    }

    fn settle(&mut self, iteration: u64, position: usize, value: SettledValue<V>) {
        let Self { requested, outputs, order, responses } = self;
        match outputs.settle(iteration, position, value) {
            JoinOutcome::Waiting => {}
            JoinOutcome::Missing => order.end(iteration, |response| responses.push_back(response)),
            JoinOutcome::Complete(values) => {
                let values = requested.iter().zip(values.into_iter().map(SettledValue::into_value));
                let response = values.filter_map(|(output, value)| Some((*output, value?))).collect();
                order.push(iteration, response, |response| responses.push_back(response));
                order.end(iteration, |response| responses.push_back(response));
            }
        }
    }
}
