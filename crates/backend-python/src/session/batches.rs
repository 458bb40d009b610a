//! Batches on their way to a worker.
use config::ModelConfig;
use inference::{
    OutputSelection, Request, SequenceId, TraceContext,
    backend::{Batch, Execution},
};
use vocabulary::{Error, FailureReason};

use crate::{
    session::{
        calls::{OpenCall, OpenRequest},
        placed_tensors::PlacedTensors,
        worker_session::WorkerSession,
    },
    wire::{
        frames::{FrameWriter, WorkerFrameKind},
        messages::parameters_json,
    },
};

struct PreparedRequest {
    execution: Execution,
    places: PlacedTensors,
}

/// Sends batches to a worker, in one message. Returns how many of them the worker has got: a batch whose requests
/// have all ended before is not sent.
pub(crate) fn send_batches(
    session: &WorkerSession,
    config: &ModelConfig,
    batches: impl Iterator<Item = Batch>,
    unhealthy: &Error,
) -> usize {
    let mut frame = FrameWriter::default();
    let prepared: Vec<_> = batches
        .map(|Batch { executions, execution_times }| {
            let requests: Vec<_> = executions
                .into_iter()
                .filter_map(|execution| prepare(session, &mut frame, execution))
                .collect();
            (execution_times, requests)
        })
        .filter(|(_, requests)| !requests.is_empty())
        .collect();
    let count = prepared.len();
    if count == 0 {
        return 0;
    }
    let mut outbox = session.outbox();
    if outbox.calls.is_closed() {
        drop(outbox);
        let requests = prepared.into_iter().flat_map(|(_, requests)| requests);
        requests.for_each(|request| request.execution.fail(unhealthy.clone()));
        return count;
    }
    frame.header.tuple(3);
    frame.header.int(WorkerFrameKind::Execute as u8);
    outbox.write_returned(&mut frame);
    frame.header.tuple(count);
    let table = &mut outbox.calls;
    let mut started = Vec::with_capacity(count);
    for (times, requests) in prepared {
        let number = table.number();
        frame.header.tuple(2);
        frame.header.int(number);
        frame.header.tuple(requests.len());
        let mut handles = Vec::with_capacity(requests.len());
        for PreparedRequest { execution, places } in requests {
            let handle = table.number();
            write_request(&mut frame, handle, &execution.request, &places, config);
            let (responder, outputs) = (execution.responder.clone(), execution.request.outputs.clone());
            table.insert_request(handle, OpenRequest { execution: Some(execution), responder, outputs });
            handles.push(handle);
        }
        started.push(times.clone());
        table.insert(number, OpenCall { times, handles });
    }
    drop(outbox);
    // Traces hear of it, which have locks of their own.
    started.iter().for_each(|times| times.compute_started());
    session.send(frame);
    count
}

/// Puts the tensors of a request where the worker can read them. `None` if the request has ended instead.
fn prepare(
    session: &WorkerSession,
    frame: &mut FrameWriter,
    mut execution: Execution,
) -> Option<PreparedRequest> {
    // A request of a sequence runs although it was cancelled: otherwise the model would miss a step.
    if execution.responder.is_cancelled() && execution.request.sequence.id.is_none() {
        execution.cancel();
        return None;
    }
    execution.load_states();
    match PlacedTensors::put(session, frame, execution.request.tensors()) {
        Ok(places) => Some(PreparedRequest { execution, places }),
        Err(error) => {
            execution.fail(error.because(FailureReason::Backend));
            None
        }
    }
}

/// `python/nereid_worker.py` reads the fields in this order.
fn write_request(
    frame: &mut FrameWriter,
    handle: u64,
    request: &Request,
    places: &PlacedTensors,
    config: &ModelConfig,
) {
    let header = &mut frame.header;
    header.tuple(10);
    header.int(handle);
    header.str(&request.id);
    match &request.sequence.id {
        None => header.int(0),
        Some(SequenceId::Number(number)) => header.int(number.get()),
        Some(SequenceId::ServerGenerated(number)) => header.int(*number),
        Some(SequenceId::Text(text)) => header.str(text),
    }
    header.int(i32::from(request.sequence.start) + 2 * i32::from(request.sequence.end));
    header.int(request.timeout.map_or(0, |timeout| i128::try_from(timeout.as_micros()).unwrap_or(i128::MAX)));
    header.int(request.priority);
    if request.parameters.is_empty() {
        header.none();
    } else {
        header.str(&parameters_json(&request.parameters));
    }
    match &request.outputs {
        OutputSelection::Nothing => header.tuple(0),
        OutputSelection::Named(names) => {
            header.tuple(names.len());
            names.iter().for_each(|name| header.str(name));
        }
        OutputSelection::All => {
            header.tuple(config.outputs.len());
            config.outputs.iter().for_each(|output| header.str(&output.name));
        }
    }
    header.optional_str(request.trace.as_ref().and_then(TraceContext::propagated).as_deref());
    places.write(frame, request.tensors());
}
