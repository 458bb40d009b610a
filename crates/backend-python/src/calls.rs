//! Executions on their way to a worker, and those that a worker has.
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use inference::{
    Error, ErrorCode, ExecutionTimes, FailureReason, OutputSelection, Parameter, Parameters, Request,
    Responder, SequenceId, Tensor, TraceContext,
    backend::{Batch, Execution},
    config::ModelConfig,
};
use smallvec::SmallVec;

use crate::{
    channel::{WorkerChannel, WorkerFrameKind},
    frames::FrameWriter,
};

/// Larger tensors are in the area that server and worker share. Smaller ones are in the message.
pub(crate) const INLINE_BYTES: usize = 16 << 10;

/// The executions and requests that a worker has.
#[derive(Debug, Default)]
pub(crate) struct CallTable {
    calls: HashMap<u64, OpenCall>,
    requests: HashMap<u64, OpenRequest>,
    last_number: u64,
    /// The worker has ended, and accepts no more requests.
    is_closed: bool,
}

/// An execution that a worker has.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) times: Arc<ExecutionTimes>,
    /// The requests, in the order of the model's list.
    pub(crate) handles: Vec<u64>,
}

/// A request that a worker has.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    /// `None` after the execution of a decoupled model has ended: then only responses can follow.
    pub(crate) execution: Option<Execution>,
    pub(crate) responder: Responder,
    pub(crate) outputs: OutputSelection,
}

impl CallTable {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether the worker has nothing that must end.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.requests.is_empty()
    }

    /// Removes an execution that has ended.
    pub(crate) fn end_call(&mut self, number: u64) -> Option<OpenCall> {
        self.calls.remove(&number)
    }

    /// A request.
    pub(crate) fn request(&mut self, handle: u64) -> Option<&mut OpenRequest> {
        self.requests.get_mut(&handle)
    }

    /// Removes a request that gets no more responses.
    pub(crate) fn end_request(&mut self, handle: u64) -> Option<OpenRequest> {
        self.requests.remove(&handle)
    }

    /// The worker has ended. Returns its requests.
    pub(crate) fn close(&mut self) -> Vec<OpenRequest> {
        self.is_closed = true;
        self.calls.clear();
        self.requests.drain().map(|(_, request)| request).collect()
    }
}

/// A batch that waits for a worker.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) batch: Batch,
    pub(crate) since: Instant,
}

impl WaitingCall {
    pub(crate) fn fail(self, error: &Error) {
        for execution in self.batch.executions {
            execution.fail(error.clone());
        }
    }

    /// The longest time that a request of the batch may wait for a worker that is started again.
    pub(crate) fn patience(&self, at_most: Duration) -> Duration {
        let timeouts = self.batch.executions.iter().filter_map(|execution| execution.request.timeout);
        timeouts.filter(|timeout| !timeout.is_zero()).chain([at_most]).min().unwrap_or(at_most)
    }
}

/// Where a message has a tensor.
#[derive(Debug, Clone, Copy)]
enum PlacedTensor {
    Inline(usize),
    Area(usize),
}

struct PreparedRequest {
    execution: Execution,
    places: SmallVec<[PlacedTensor; 2]>,
}

/// Sends batches to a worker, in one message. Returns how many of them the worker has got: a batch whose requests
/// have all ended before is not sent.
pub(crate) fn send_calls(
    channel: &WorkerChannel,
    config: &ModelConfig,
    calls: Vec<WaitingCall>,
    unhealthy: &Error,
) -> usize {
    let mut frame = FrameWriter::default();
    let prepared: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let Batch { executions, execution_times } = call.batch;
            let requests: Vec<_> = executions
                .into_iter()
                .filter_map(|execution| prepare(channel, &mut frame, execution))
                .collect();
            (execution_times, requests)
        })
        .filter(|(_, requests)| !requests.is_empty())
        .collect();
    let count = prepared.len();
    if count == 0 {
        return 0;
    }
    frame.header.tuple(3);
    frame.header.int(WorkerFrameKind::Execute as u8);
    channel.write_returned(&mut frame);
    frame.header.tuple(count);
    let mut table = channel.calls.lock();
    if table.is_closed {
        drop(table);
        let requests = prepared.into_iter().flat_map(|(_, requests)| requests);
        requests.for_each(|request| request.execution.fail(unhealthy.clone()));
        return count;
    }
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
            table.requests.insert(handle, OpenRequest { execution: Some(execution), responder, outputs });
            handles.push(handle);
        }
        started.push(times.clone());
        table.calls.insert(number, OpenCall { times, handles });
    }
    drop(table);
    // Traces hear of it, which have locks of their own.
    started.iter().for_each(|times| times.compute_started());
    channel.send(frame);
    count
}

/// Puts the tensors of a request where the worker can read them. `None` if the request has ended instead.
fn prepare(
    channel: &WorkerChannel,
    frame: &mut FrameWriter,
    execution: Execution,
) -> Option<PreparedRequest> {
    // A request of a sequence runs although it was cancelled: otherwise the model would miss a step.
    if execution.responder.is_cancelled() && execution.request.sequence.id.is_none() {
        let error = Error::new(ErrorCode::Cancelled, "request was cancelled");
        execution.fail(error.because(FailureReason::Cancelled));
        return None;
    }
    match place_all(channel, frame, execution.request.tensors()) {
        Ok(places) => Some(PreparedRequest { execution, places }),
        Err(error) => {
            execution.fail(error.because(FailureReason::Backend));
            None
        }
    }
}

fn place_all(
    channel: &WorkerChannel,
    frame: &mut FrameWriter,
    tensors: &[Tensor],
) -> Result<SmallVec<[PlacedTensor; 2]>, Error> {
    let mut places = SmallVec::new();
    for tensor in tensors {
        match place(channel, frame, tensor) {
            Ok(place) => places.push(place),
            Err(error) => {
                let mut input = channel.input.lock();
                for place in places {
                    if let PlacedTensor::Area(offset) = place {
                        input.give_back(offset);
                    }
                }
                return Err(error);
            }
        }
    }
    Ok(places)
}

fn place(channel: &WorkerChannel, frame: &mut FrameWriter, tensor: &Tensor) -> Result<PlacedTensor, Error> {
    if tensor.byte_size() > INLINE_BYTES {
        return channel.input.lock().put(tensor).map(PlacedTensor::Area);
    }
    let data = tensor.host()?;
    Ok(PlacedTensor::Inline(frame.append(data.pieces().iter().map(AsRef::as_ref))))
}

/// Writes tensors into a message of another kind, or returns the error of the first that has no room.
pub(crate) fn write_tensors(
    channel: &WorkerChannel,
    frame: &mut FrameWriter,
    tensors: &[Tensor],
) -> Result<PlacedTensors, Error> {
    place_all(channel, frame, tensors).map(PlacedTensors)
}

/// The places of tensors in a message that is being written.
pub(crate) struct PlacedTensors(SmallVec<[PlacedTensor; 2]>);

impl PlacedTensors {
    /// Writes the tuple of the tensors.
    pub(crate) fn write(&self, frame: &mut FrameWriter, tensors: &[Tensor]) {
        write_placed(frame, tensors, &self.0);
    }
}

fn write_placed(frame: &mut FrameWriter, tensors: &[Tensor], places: &[PlacedTensor]) {
    let header = &mut frame.header;
    header.tuple(tensors.len());
    for (tensor, place) in tensors.iter().zip(places) {
        header.tuple(6);
        header.str(tensor.name());
        header.str(tensor.datatype().protocol_name());
        header.tuple(tensor.shape().len());
        tensor.shape().iter().for_each(|dim| header.int(*dim));
        let (is_in_area, offset) = match *place {
            PlacedTensor::Inline(offset) => (false, offset),
            PlacedTensor::Area(offset) => (true, offset),
        };
        header.bool(is_in_area);
        header.size(offset);
        header.size(tensor.byte_size());
    }
}

/// `python/nereid_worker.py` reads the fields in this order.
fn write_request(
    frame: &mut FrameWriter,
    handle: u64,
    request: &Request,
    places: &[PlacedTensor],
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
    write_placed(frame, request.tensors(), places);
}

/// The object in JSON that a model gets, in the client's order. Bytes have no form in JSON, and are left out.
pub(crate) fn parameters_json(parameters: &Parameters) -> String {
    let value = |parameter: &Parameter| match parameter {
        Parameter::String(text) => Some(serde_json::Value::from(text.as_str())),
        Parameter::Int(number) => Some((*number).into()),
        Parameter::Bool(truth) => Some((*truth).into()),
        Parameter::Double(number) => Some((*number).into()),
        Parameter::Bytes(_) => None,
    };
    let pairs = parameters.iter().filter_map(|(name, parameter)| {
        Some(format!("{}:{}", serde_json::Value::from(name.as_str()), value(parameter)?))
    });
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}
