//! Requests that take many runs: the graph says after each run which of them are done.
//!
//! Models with `iterative_sequence` name an output of the graph in the parameter `ITERATION_DONE_OUTPUT`. Whoever is not
//! done goes back to the scheduler and runs again, with whatever has come meanwhile; what it needs to go on is in its
//! state. A decoupled model answers with every run, another one with the last.
use inference::{
    DataType, Error, ErrorCode, FailureReason, RequestInputs, Response,
    backend::Execution,
    config::{ModelConfig, Scheduling},
};

use crate::{
    ort::{Element, OutputValue, Signature, ValueKind},
    plan::ExecutionPlan,
    scatter::ScatterTarget,
};

/// The parameter that names the output.
pub(crate) const DONE_OUTPUT: &str = "ITERATION_DONE_OUTPUT";

/// How the requests of an iterative model go on after a run.
pub(crate) struct Iteration {
    /// Position of the output that tells who is done among the signature's outputs; `None`: everybody is after one run.
    pub(crate) slot: Option<usize>,
    /// Whether each run is answered, and not only the last.
    decoupled: bool,
}

impl Iteration {
    /// What the configuration of an iterative model asks for; `None` for other models.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the parameter is there without `iterative_sequence`, or names what the graph does not give or
    /// what is not one BOOL per row.
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

    /// Answers the last run of a request. The final flag of a decoupled model comes behind its last response, as backends
    /// of the reference send it: there are clients that do not read a response with the flag.
    pub(crate) fn end(&self, execution: Execution, response: Response) {
        if self.decoupled {
            execution.responder.send(response);
            execution.responder.finish();
        } else {
            execution.responder.complete(response);
        }
    }

    /// Answers a run that was not the last of its request and hands the request back. Nobody waits for one that was
    /// cancelled, so it ends here.
    pub(crate) fn go_on(&self, plan: &ExecutionPlan, mut execution: Execution, response: Response) {
        if self.decoupled {
            execution.responder.send(response);
        }
        if execution.responder.is_cancelled() {
            answer_cancelled(execution);
            return;
        }
        // The next run recalls what this one has left.
        if let RequestInputs::Tensors(inputs) = &mut execution.request.inputs {
            inputs.retain(|input| plan.state_feeds().all(|feed| feed.name != *input.name()));
        }
        if let Err((error, execution)) = execution.reschedule() {
            // Answered before its slot is given back.
            execution.responder.fail(error);
        }
    }
}

/// Notes which requests are done.
///
/// # Errors
/// INTERNAL if there is not one element per row.
pub(crate) fn mark_done(
    plan: &ExecutionPlan,
    output: &OutputValue,
    shares: &mut [ScatterTarget<'_>],
) -> Result<(), Error> {
    let mut rest: &[u8] = output.as_ref();
    let total: i64 = shares.iter().map(|share| share.rows).sum();
    if usize::try_from(total) != Ok(rest.len()) {
        let (model, elements) = (&plan.model, rest.len());
        let text = format!(
            "the output that '{DONE_OUTPUT}' names for model '{model}' has {elements} elements for {total} rows"
        );
        return Err(Error::internal(text).because(FailureReason::Backend));
    }
    for share in shares {
        let (own, after) = rest.split_at(usize::try_from(share.rows).unwrap_or(0));
        share.is_done = own.iter().all(|&done| done != 0);
        rest = after;
    }
    Ok(())
}

/// The last word to a request that nobody waits for.
pub(crate) fn answer_cancelled(execution: Execution) {
    let error = Error::new(ErrorCode::Cancelled, "request was cancelled");
    execution.responder.fail(error.because(FailureReason::Cancelled));
}

fn done_slot(config: &ModelConfig, signature: &Signature, name: &str) -> Result<usize, Error> {
    let refuse = |why: String| Err(unable(config, &format!("the parameter '{DONE_OUTPUT}' {why}")));
    let Some(slot) = signature.outputs.iter().position(|slot| slot.name == *name) else {
        return refuse(format!("names '{name}', which is no output of the model"));
    };
    let (element, shape) = match &signature.outputs[slot].kind {
        ValueKind::Tensor(element, shape) => (*element, shape),
        ValueKind::Other(kind) => return refuse(format!("names '{name}', which is no tensor but {kind}")),
    };
    if element != Element::of(DataType::Bool) {
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
