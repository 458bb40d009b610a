//! From the requests of a model to other models to the responses that its worker gets.
use std::{num::NonZeroU64, time::Duration};

use inference::{OutputSelection, Request, RequestInputs, ResponseStream, SequenceId, SequencePosition};
use vocabulary::{Error, Tensor};

use crate::{
    answering::outputs::TensorReader,
    services::nested_inferences::{InferenceReply, NestedInferences},
    session::{placed_tensors::PlacedTensors, worker_session::WorkerSession},
    wire::{
        frames::{FrameWriter, WorkerFrameKind},
        messages::{WireRequest, error_number, parameters_json, parameters_of_json},
    },
};

/// Sends a request of the model, and gives the worker what is there at once.
pub(crate) fn begin(
    session: &WorkerSession,
    inferences: &mut NestedInferences,
    number: u64,
    (wire, is_decoupled): (&WireRequest<'_>, bool),
) {
    match send(session, inferences, wire, is_decoupled) {
        Ok(stream) => {
            inferences.add(number, stream, is_decoupled);
            give_all(session, inferences, number);
        }
        Err(error) => {
            let text = format!("Model {} - Error when running inference: {}", wire.model, error.message);
            let result = Some(Err(Error::internal(text)));
            give(session, InferenceReply { number, is_last: true, result });
        }
    }
}

fn send(
    session: &WorkerSession,
    inferences: &NestedInferences,
    wire: &WireRequest<'_>,
    is_decoupled: bool,
) -> Result<ResponseStream, Error> {
    // The tensors are read first, so that the worker gets its memory back whatever follows.
    let inputs = TensorReader { session }.read(wire.inputs.iter())?;
    let version = (wire.version >= 0).then_some(wire.version);
    let inferer = inferences.inferer(wire.model, version, is_decoupled)?;
    inferer.infer(wire.model, version, request(session, wire, inputs)?)
}

/// Gives the worker the responses of the requests with news.
pub(crate) fn proceed(session: &WorkerSession, inferences: &mut NestedInferences) {
    let numbers = inferences.take_ready();
    numbers.into_iter().for_each(|number| give_all(session, inferences, number));
}

/// Gives the worker the responses of a request that are there, as far as it has room.
pub(crate) fn give_all(session: &WorkerSession, inferences: &mut NestedInferences, number: u64) {
    while let Some(reply) = inferences.next(number) {
        give(session, reply);
    }
}

fn request(session: &WorkerSession, wire: &WireRequest<'_>, inputs: Vec<Tensor>) -> Result<Request, Error> {
    let id = match wire.correlation_id {
        Ok(number) => NonZeroU64::new(number).map(SequenceId::Number),
        Err("") => None,
        Err(text) => Some(SequenceId::Text(text.into())),
    };
    let parameters =
        parameters_of_json(wire.parameters).map_err(|damage| Error::invalid(damage.0.to_owned()))?;
    let trace = wire.trace.and_then(|handle| {
        let responder = session.outbox().calls.request(handle)?.responder.clone();
        responder.timeline().trace()?.child()
    });
    Ok(Request {
        id: wire.id.into(),
        inputs: RequestInputs::Tensors(inputs),
        outputs: wire.outputs.iter().map(|name| (*name).into()).collect::<OutputSelection>(),
        sequence: SequencePosition { id, start: wire.flags & 1 != 0, end: wire.flags & 2 != 0 },
        timeout: (wire.timeout_us > 0).then(|| Duration::from_micros(wire.timeout_us)),
        parameters,
        trace,
        ..Request::default()
    })
}

/// Gives a response to the worker, the end of the responses, or both.
fn give(session: &WorkerSession, reply: InferenceReply) {
    let InferenceReply { number, is_last, result } = reply;
    let mut frame = FrameWriter::default();
    let placed = match result {
        None => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(response)) => {
            PlacedTensors::put(session, &mut frame, &response.outputs).map(|places| Some((places, response)))
        }
    };
    let header = &mut frame.header;
    header.tuple(4);
    header.int(WorkerFrameKind::Inferred as u8);
    header.int(number);
    header.bool(is_last);
    match placed {
        Ok(None) => header.none(),
        Ok(Some((places, response))) => {
            header.tuple(3);
            header.none();
            places.write(&mut frame, &response.outputs);
            frame.header.str(&parameters_json(&response.parameters));
        }
        Err(error) => {
            header.tuple(3);
            header.tuple(2);
            header.int(error_number(error.code));
            header.str(&error.message);
            header.tuple(0);
            header.str("{}");
        }
    }
    session.send(frame);
}
