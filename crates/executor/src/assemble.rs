//! Turns the rows of a policy's batch into the executions of a backend's batch, with rows of padding.
use std::sync::Arc;

use host::now;
use inference::{
    ExecutionTimes, ResponseStream,
    backend::{Batch, Execution, SlotOwner},
};
use scheduling::{InstanceId, Row};
use vocabulary::Tensor;

use super::sequence_inputs::{Sequences, SlotAssignment};

/// A batch for a backend, and the values that must outlive it.
pub(super) struct Assembled {
    pub(super) batch: Batch,
    /// No client reads these streams. The executor keeps them, because a row without its stream would count as
    /// cancelled.
    _padding: Vec<ResponseStream>,
}

/// Builds a backend's batch. The executor has already answered cancelled requests.
pub(super) fn assemble(
    rows: Vec<Row<Box<Execution>>>,
    instance: InstanceId,
    sequences: Option<(&Sequences, &Arc<dyn SlotOwner>)>,
) -> Assembled {
    let mut padding = Vec::new();
    let mut size = 0;
    let mut executions = Vec::with_capacity(rows.len());
    let padding_inputs = if sequences.is_some() { padding_inputs(&rows) } else { Vec::new() };
    for (position, row) in (0..).zip(rows) {
        match (row, sequences) {
            (Row::Request { entry, slot: Some(slot) }, Some((sequences, slot_owner))) => {
                size += 1;
                executions.push(sequences.prepare(&SlotAssignment { slot_owner, instance, slot }, entry));
            }
            (Row::Request { entry, .. }, _) => {
                size += entry.attributes.batch_size.max(1);
                executions.push(*entry.payload);
            }
            (Row::Padding, Some((sequences, _))) => {
                size += 1;
                let (execution, stream) = sequences.pad(instance, position, &padding_inputs);
                executions.push(execution);
                padding.push(stream);
            }
            (Row::Padding, None) => unreachable!("only the sequence batcher pads"),
        }
    }
    let traces = executions.iter().filter_map(|execution| execution.responder.timeline().trace());
    let execution_times = Arc::new(ExecutionTimes::start(size, now).traced(traces));
    for execution in &executions {
        execution.responder.timeline().executing(execution_times.clone());
    }
    Assembled { batch: Batch { executions, execution_times }, _padding: padding }
}

/// The inputs of padding rows, if there are such rows: those of the first request of the batch, filled with zeros.
fn padding_inputs(rows: &[Row<Box<Execution>>]) -> Vec<Tensor> {
    let has_padding = rows.iter().any(|row| matches!(row, Row::Padding));
    let first =
        rows.iter().find_map(|row| if let Row::Request { entry, .. } = row { Some(entry) } else { None });
    let inputs = first.filter(|_| has_padding).map_or(&[][..], |entry| entry.payload.request.tensors());
    let blank =
        |tensor: &Tensor| Tensor::zeros(tensor.name().clone(), tensor.datatype(), tensor.shape().into());
    inputs.iter().map(blank).collect()
}
