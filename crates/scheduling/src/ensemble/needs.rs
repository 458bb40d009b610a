//! Which steps a request needs, and which of them use a tensor.
use super::graph_step::{GraphStep, StepIndex, TensorIndex};

/// What uses a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorConsumer {
    /// A step, for the input at this position.
    Step { step: StepIndex, position: usize },
    /// The client, for the requested output at this position.
    Client { position: usize },
}

/// The part of a graph that produces the outputs that a client requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NeededGraph {
    /// The needed consumers of each tensor.
    pub(super) consumers: Vec<Vec<TensorConsumer>>,
    /// The tensors that never get more than iteration 0, because no needed decoupled step is before them, or because
    /// a step combines them with such a tensor.
    has_one_iteration: Vec<bool>,
}

impl NeededGraph {
    /// The part of a graph with so many tensors. `inputs` are those that the client gives, `requested` those that it wants.
    pub(super) fn new(
        tensors: usize,
        inputs: &[TensorIndex],
        steps: &[GraphStep],
        requested: &[TensorIndex],
    ) -> Self {
        let mut consumers = vec![Vec::new(); tensors];
        for step in needed_steps(tensors, steps, requested) {
            for (position, input) in steps[step].inputs.iter().enumerate() {
                consumers[input.tensor].push(TensorConsumer::Step { step, position });
            }
        }
        for (position, tensor) in requested.iter().enumerate() {
            consumers[*tensor].push(TensorConsumer::Client { position });
        }
        let has_one_iteration = tensors_with_one_iteration(inputs, steps, &consumers);
        Self { consumers, has_one_iteration }
    }

    /// Whether a join of these tensors has iteration 0 only.
    pub(super) fn is_one_iteration(&self, mut tensors: impl Iterator<Item = TensorIndex>) -> bool {
        tensors.any(|tensor| self.has_one_iteration[tensor])
    }
}

/// The steps before the requested tensors, in the order of steps.
fn needed_steps(
    tensors: usize,
    steps: &[GraphStep],
    requested: &[TensorIndex],
) -> impl Iterator<Item = StepIndex> {
    let mut producers = vec![None; tensors];
    for (step, GraphStep { outputs, .. }) in steps.iter().enumerate() {
        outputs.iter().for_each(|tensor| producers[*tensor] = Some(step));
    }
    let mut is_needed = vec![false; steps.len()];
    let mut tensors = requested.to_vec();
    while let Some(tensor) = tensors.pop() {
        if let Some(step) = producers[tensor]
            && !std::mem::replace(&mut is_needed[step], true)
        {
            tensors.extend(steps[step].inputs.iter().map(|input| input.tensor));
        }
    }
    is_needed.into_iter().enumerate().filter_map(|(step, is_needed)| is_needed.then_some(step))
}

fn tensors_with_one_iteration(
    inputs: &[TensorIndex],
    steps: &[GraphStep],
    consumers: &[Vec<TensorConsumer>],
) -> Vec<bool> {
    let mut has_one_iteration = vec![false; consumers.len()];
    let mut tensors = inputs.to_vec();
    while let Some(tensor) = tensors.pop() {
        if std::mem::replace(&mut has_one_iteration[tensor], true) {
            continue;
        }
        for consumer in &consumers[tensor] {
            if let TensorConsumer::Step { step, .. } = consumer
                && !steps[*step].is_decoupled
            {
                tensors.extend(&steps[*step].outputs);
            }
        }
    }
    has_one_iteration
}
