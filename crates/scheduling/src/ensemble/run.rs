//! One request on its way through an ensemble.
use std::{collections::BTreeMap, sync::Arc};

use super::{EnsembleAction, EnsembleGraph, StepIndex, StepRun, TensorValue, propagation::Propagation};
use crate::cost_counter;

/// The run of one request through the graph of an ensemble.
///
/// `V` is a value of a tensor. It must be cheap to clone: each consumer of a tensor gets a clone, the last one gets
/// the value itself. `E` is an error.
///
/// Events of steps that have ended are ignored, and so are all events after the end of the request. After the end
/// [`ended`](Self::ended) still counts the steps in flight.
#[derive(Debug)]
pub struct EnsembleRun<V, E> {
    values: Propagation<V>,
    /// The executions in flight, and whether they have sent a response.
    running: BTreeMap<StepRun, bool>,
    progress: Progress<E>,
}

#[derive(Debug)]
enum Progress<E> {
    Running,
    /// The error has not been returned.
    Failed(E),
    Over,
}

impl<V: Clone, E> EnsembleRun<V, E> {
    /// Starts a request. `inputs` has one value for each input of the graph, in order; `None` means that the client
    /// left the input out. `is_requested` says whether the client wants the output of the graph at a position.
    #[must_use]
    pub fn new(
        graph: Arc<EnsembleGraph>,
        inputs: Vec<Option<V>>,
        is_requested: impl Fn(usize) -> bool,
    ) -> Self {
        let requested = (0..graph.outputs.len()).filter(|position| is_requested(*position)).collect();
        let values = Propagation::new(graph, inputs, requested);
        Self { values, running: BTreeMap::new(), progress: Progress::Running }
    }

    /// Returns the next thing to do. `None` means that there is nothing to do before the next event.
    ///
    /// This function asks `may_start` before it starts a step. If the answer is true, the step does start. If it is
    /// false, the step can start at a later call.
    pub fn next(&mut self, may_start: impl FnMut(StepIndex) -> bool) -> Option<EnsembleAction<V, E>> {
        match std::mem::replace(&mut self.progress, Progress::Over) {
            Progress::Over => return None,
            Progress::Failed(error) => return Some(EnsembleAction::Fail(error)),
            Progress::Running => {}
        }
        let action = self.next_of_running(may_start);
        match &action {
            None | Some(EnsembleAction::Start { .. } | EnsembleAction::Respond { is_last: false, .. }) => {
                self.progress = Progress::Running;
            }
            Some(_) => self.values.clear(),
        }
        action
    }

    fn next_of_running(
        &mut self,
        mut may_start: impl FnMut(StepIndex) -> bool,
    ) -> Option<EnsembleAction<V, E>> {
        if let Some(outputs) = self.values.take_response() {
            let is_last = !self.values.is_decoupled() || (!self.values.has_responses() && self.is_idle());
            return Some(EnsembleAction::Respond { outputs, is_last });
        }
        let mut ready = self.values.first_ready(0);
        while let Some(run) = ready {
            cost_counter::count();
            if may_start(run.step) {
                self.running.insert(run, false);
                let inputs = self.values.take_inputs(run)?;
                return Some(EnsembleAction::Start { run, inputs });
            }
            ready = self.values.first_ready(run.step + 1);
        }
        let end =
            || if self.values.is_decoupled() { EnsembleAction::Finish } else { EnsembleAction::Deadlock };
        self.is_idle().then(end)
    }

    /// A step in flight has sent a response. `outputs` has one value for each output of the step, in order.
    ///
    /// Only the first response counts if the step is not decoupled.
    pub fn responded(&mut self, run: StepRun, outputs: Vec<TensorValue<V>>) {
        let Some(has_responded) = self.running.get_mut(&run) else { return };
        let is_first = !std::mem::replace(has_responded, true);
        if matches!(self.progress, Progress::Running) && (is_first || self.values.is_step_decoupled(run.step))
        {
            self.values.responded(run, outputs);
        }
    }

    /// A step in flight has ended: it sends no further response.
    pub fn ended(&mut self, run: StepRun) {
        let Some(has_responded) = self.running.remove(&run) else { return };
        if matches!(self.progress, Progress::Running) {
            self.values.ended(run, has_responded);
        }
    }

    /// The request fails, because a step has failed or cannot start, or because the request was cancelled. The first
    /// error decides.
    ///
    /// All values that are held are dropped at once, and no step starts any more. The error does not wait for the steps
    /// in flight: see [`running`](Self::running).
    pub fn failed(&mut self, error: E) {
        if matches!(self.progress, Progress::Running) {
            self.progress = Progress::Failed(error);
            self.values.clear();
        }
    }

    /// Whether the request has ended: [`next`](Self::next) has returned the action that ends it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.progress, Progress::Over)
    }

    /// The number of steps in flight: those that have started and not [`ended`](Self::ended).
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of values that wait for a step, for the client or for their turn. A value that several consumers
    /// wait for counts once for each. This function looks at all of them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.values.held()
    }

    /// The number of iterations that take memory, in all places.
    #[cfg(test)]
    pub(super) fn iterations(&self) -> usize {
        self.values.iterations()
    }

    /// Whether no step runs and no step can start.
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.values.first_ready(0).is_none()
    }
}
