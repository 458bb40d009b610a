//! Requests that take many runs. After each run, the graph reports which of them are done.
//!
//! The configuration of a model with `iterative_sequence` names an output of the graph in the parameter
//! `ITERATION_DONE_OUTPUT`. The backend reschedules a request that is not done. The request runs again, with requests
//! that have arrived meanwhile. The data that it needs is in its state. A decoupled model answers after every run,
//! another model only after the last.
use config::{ModelConfig, Scheduling};
use inference::{RequestInputs, Response, backend::Execution};
use vocabulary::{DataType, Error, FailureReason};

use crate::{OtherKind, Signature, ValueKind, plan::ExecutionPlan, scatter::ScatterTarget};

/// The parameter with the name of the output.
pub(crate) const DONE_OUTPUT: &str = "ITERATION_DONE_OUTPUT";

/// How the requests of an iterative model continue after a run.
pub(crate) struct Iteration {
    /// Position of the output that reports finished requests, among the signature's outputs. `None`: every request is
    /// done after one run.
    pub(crate) slot: Option<usize>,
    /// Whether every run is answered, and not only the last.
    decoupled: bool,
}

impl Iteration {
    /// The iteration of a configuration; `None` for a model that is not iterative.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the parameter is set without `iterative_sequence`, or names an output that the graph lacks,
    /// or an output that is not one BOOL for each row.
    pub(crate) fn of(config: &ModelConfig, signature: &Signature) -> Result<Option<Self>, Error> {
        let is_iterative =
            matches!(&config.scheduling, Scheduling::Sequence(sequence) if sequence.batching.iterative);
        let named = config.parameters.get(DONE_OUTPUT);
        let slot = match named {
            Some(name) if is_iterative => Some(done_slot(config, signature, name)?),
            Some(_) => {
                let why = "which needs sequence_batching with iterative_sequence";
                return Err(unable(config, &format!("it has the parameter '{DONE_OUTPUT}', {why}")));
            }
            None => None,
        };
        Ok(is_iterative.then_some(Self { slot, decoupled: config.decoupled }))
    }

    /// Answers the last run of a request. The final flag of a decoupled model follows its last response, as Triton's
    /// backends send it: some clients do not read a response that carries the flag.
    pub(crate) fn end(&self, execution: Execution, response: Response) {
        if self.decoupled {
            execution.complete_decoupled(response);
        } else {
            execution.complete(response);
        }
    }

    /// Answers a run that is not the last of its request, and reschedules the request. A cancelled request ends
    /// instead.
    pub(crate) fn go_on(&self, plan: &ExecutionPlan, mut execution: Execution, response: Response) {
        if self.decoupled {
            execution.responder.send(response);
        }
        if execution.responder.is_cancelled() {
            execution.cancel();
            return;
        }
        // The next run reads the states that this run has stored.
        if let RequestInputs::Tensors(inputs) = &mut execution.request.inputs {
            inputs.retain(|input| plan.state_feeds().all(|feed| feed.name != *input.name()));
        }
        if let Err((error, execution)) = execution.reschedule() {
            // Answered before its slot is released.
            execution.fail(error);
        }
    }
}

/// Checks what a configuration says of iteration against its graph.
///
/// # Errors
/// INVALID_ARGUMENT if the parameter that names the output of finished requests is set without `iterative_sequence`, or names an
/// output that the graph lacks, or one that is not a BOOL for each row.
pub fn check_iteration(config: &ModelConfig, signature: &Signature) -> Result<(), Error> {
    Iteration::of(config, signature).map(|_| ())
}

/// Records which requests are done. `done` has a byte for each row.
///
/// # Errors
/// INTERNAL if there is not one element for each row.
pub(crate) fn mark_done(
    plan: &ExecutionPlan,
    mut done: &[u8],
    shares: &mut [ScatterTarget<'_>],
) -> Result<(), Error> {
    let total: i64 = shares.iter().map(|share| share.rows).sum();
    if usize::try_from(total) != Ok(done.len()) {
        let (model, elements) = (&plan.model, done.len());
        let text = format!(
            "the output that '{DONE_OUTPUT}' names for model '{model}' has {elements} elements for {total} rows"
        );
        return Err(Error::internal(text).because(FailureReason::Backend));
    }
    for share in shares {
        let (own, after) = done.split_at(usize::try_from(share.rows).unwrap_or(0));
        share.is_done = own.iter().all(|&row| row != 0);
        done = after;
    }
    Ok(())
}

fn done_slot(config: &ModelConfig, signature: &Signature, name: &str) -> Result<usize, Error> {
    let refuse = |why: String| Err(unable(config, &format!("the parameter '{DONE_OUTPUT}' {why}")));
    let Some(slot) = signature.outputs.iter().position(|slot| slot.name == *name) else {
        return refuse(format!("names '{name}', which is no output of the model"));
    };
    let (element, shape) = match &signature.outputs[slot].kind {
        ValueKind::Tensor(element, shape) => (element, shape),
        ValueKind::Other(OtherKind { name: kind, .. }) => {
            return refuse(format!("names '{name}', which is no tensor but {kind}"));
        }
    };
    if element.datatype() != Some(DataType::Bool) {
        return refuse(format!(
            "names '{name}' of datatype TYPE_{}, but must name a TYPE_BOOL",
            element.name()
        ));
    }
    let of_row = match (config.max_batch_size, shape.split_first()) {
        (None, _) => &shape[..],
        (Some(_), Some((-1, dims))) => dims,
        (Some(_), _) => return refuse(format!("names '{name}', which has no batch dimension")),
    };
    if of_row.iter().any(|&dim| dim != 1) {
        return refuse(format!("names '{name}' of shape {shape:?}, but must name one element per row"));
    }
    Ok(slot)
}

fn unable(config: &ModelConfig, why: &str) -> Error {
    Error::invalid(format!("unable to load model '{}', {why}", config.name))
}
