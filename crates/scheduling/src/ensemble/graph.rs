//! The steps of an ensemble and the tensors between them.
use std::sync::Arc;

use super::{
    graph_step::{GraphStep, TensorIndex},
    needs::NeededGraph,
};

/// The steps of an ensemble and the tensors between them. The graph does not change after the load. The rules of the
/// configuration hold: at most one step produces a tensor, no step produces an input of the ensemble, each step has an
/// input, and there are no cycles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnsembleGraph {
    /// The number of tensors.
    pub tensors: usize,
    /// The tensors that the client gives.
    pub inputs: Vec<TensorIndex>,
    /// The tensors that the client receives.
    pub outputs: Vec<TensorIndex>,
    /// The steps. Their order is the order of starts when several steps can start.
    pub steps: Vec<GraphStep>,
    /// What a request needs that wants all outputs.
    pub(super) needed_for_all: Arc<NeededGraph>,
}

impl EnsembleGraph {
    /// A graph of so many tensors.
    #[must_use]
    pub fn new(
        tensors: usize,
        inputs: Vec<TensorIndex>,
        outputs: Vec<TensorIndex>,
        steps: Vec<GraphStep>,
    ) -> Self {
        let needed_for_all = Arc::new(NeededGraph::new(tensors, &inputs, &steps, &outputs));
        Self { tensors, inputs, outputs, steps, needed_for_all }
    }

    /// The part that produces these tensors.
    pub(super) fn needed(&self, requested: &[TensorIndex]) -> NeededGraph {
        NeededGraph::new(self.tensors, &self.inputs, &self.steps, requested)
    }

    /// Whether the ensemble is decoupled: it sends any number of responses for a request.
    #[must_use]
    pub fn is_decoupled(&self) -> bool {
        self.steps.iter().any(|step| step.is_decoupled)
    }

    /// For each step, whether a request may start it several times: a decoupled step comes before it.
    #[must_use]
    pub fn repeated_steps(&self) -> Vec<bool> {
        let mut consumers = vec![Vec::new(); self.tensors];
        for (index, step) in self.steps.iter().enumerate() {
            step.inputs.iter().for_each(|input| consumers[input.tensor].push(index));
        }
        let mut repeated = vec![false; self.steps.len()];
        let mut open: Vec<_> = self.steps.iter().filter(|step| step.is_decoupled).collect();
        while let Some(step) = open.pop() {
            for &consumer in step.outputs.iter().flat_map(|output| &consumers[*output]) {
                if !std::mem::replace(&mut repeated[consumer], true) {
                    open.push(&self.steps[consumer]);
                }
            }
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph_step::StepInput;
    use super::*;

    #[test]
    fn steps_behind_a_decoupled_one_are_repeated() {
        let step = |input, output, is_decoupled| GraphStep {
            inputs: vec![StepInput { tensor: input, is_optional: false }],
            outputs: vec![output],
            is_decoupled,
        };
        let steps =
            vec![step(0, 1, false), step(1, 2, true), step(2, 3, false), step(3, 4, true), step(1, 5, false)];
        let graph = EnsembleGraph::new(6, vec![0], vec![4, 5], steps);
        assert_eq!(graph.repeated_steps(), [false, false, true, true, false]);
    }
}
