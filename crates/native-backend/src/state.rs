//! States of sequences before and after a run.
//!
//! After a state has joined the inputs of its request, it is an input like any other. A part of an output becomes the
//! next state without a change: for a request that runs alone, no number is copied from step to step.
use inference::backend::Execution;
use smallvec::{SmallVec, smallvec};
use vocabulary::{Error, Tensor};

use crate::plan::ExecutionPlan;

/// Stores the outputs of a run as the next states of the request's sequence.
///
/// # Errors
/// INVALID_ARGUMENT if the sequence has no state of that name: its states were made for another configuration.
pub(crate) fn store_states(execution: &Execution, states: &[Tensor]) -> Result<(), Error> {
    let Some(memory) = &execution.state else { return Ok(()) };
    states.iter().try_for_each(|state| memory.update(state.name(), state))
}

/// Splits a batch into groups of requests whose states can be joined, because their shapes are equal except for the
/// rows. Each group runs by itself. Most batches have one group.
pub(crate) fn groups(plan: &ExecutionPlan, executions: Vec<Execution>) -> SmallVec<[Vec<Execution>; 1]> {
    let is_uniform = executions.windows(2).all(|pair| are_alike(plan, &pair[0], &pair[1]));
    if is_uniform {
        return smallvec![executions];
    }
    let mut groups: SmallVec<[Vec<Execution>; 1]> = SmallVec::new();
    for execution in executions {
        match groups.iter_mut().find(|group| are_alike(plan, &group[0], &execution)) {
            Some(group) => group.push(execution),
            None => groups.push(vec![execution]),
        }
    }
    groups
}

fn are_alike(plan: &ExecutionPlan, one: &Execution, other: &Execution) -> bool {
    plan.state_feeds().all(|feed| item_shape(one, &feed.name) == item_shape(other, &feed.name))
}

/// The shape of one row of an input.
fn item_shape<'a>(execution: &'a Execution, input: &str) -> Option<&'a [i64]> {
    execution.request.input(input).map(|tensor| tensor.shape().get(1..).unwrap_or(&[]))
}
