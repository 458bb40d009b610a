//! The requests of a model to other models (business logic scripting).
//!
//! The thread that serves the worker sends them and polls their responses. It never waits for one of them: a waker
//! rings the alarm of that thread. A worker takes the responses of a decoupled model one by one, and the server gets
//! no more of them than the worker has room for.
use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use inference::{
    Error, ErrorCode, OutputSelection, Request, RequestInputs, Response, ResponseItem, ResponseStream,
    SequenceId, SequenceStep, Tensor, lock::Mutex,
};

use crate::{
    area::SharedArea,
    calls::write_tensors,
    channel::{Alarm, WorkerChannel, WorkerFrameKind},
    frames::FrameWriter,
    messages::{WireRequest, error_number, parameters_of_json},
    model_context::ModelContext,
    outputs::TensorReader,
};

/// The open requests of one worker.
pub(crate) struct Inferences {
    model: Arc<ModelContext>,
    open: HashMap<u64, OpenInference>,
    ready: Arc<ReadyInferences>,
}

struct OpenInference {
    stream: ResponseStream,
    /// How many responses the worker has room for; `None` for a request with one response.
    room: Option<u32>,
    /// The response of a request with one response, until its end is known.
    only: Option<Result<Response, Error>>,
    waker: Waker,
}

/// The worker has room for so many responses that the model has not taken.
const ROOM: u32 = 16;

/// A worker has no more open requests than this.
const MOST_OPEN: usize = 10_000;

/// The requests with news.
struct ReadyInferences {
    numbers: Mutex<Vec<u64>>,
    alarm: Arc<Alarm>,
}

struct InferenceWaker {
    number: u64,
    ready: Arc<ReadyInferences>,
}

impl Wake for InferenceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.numbers.lock().push(self.number);
        self.ready.alarm.ring();
    }
}

impl Inferences {
    pub(crate) fn new(model: Arc<ModelContext>, alarm: Arc<Alarm>) -> Self {
        let ready = ReadyInferences { numbers: Mutex::default(), alarm };
        Self { model, open: HashMap::new(), ready: Arc::new(ready) }
    }

    /// Sends a request of the model.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        wire: &WireRequest<'_>,
        is_decoupled: bool,
        (channel, outputs): (&WorkerChannel, &SharedArea),
    ) {
        match self.send(wire, is_decoupled, (channel, outputs)) {
            Ok(stream) => {
                let waker = Waker::from(Arc::new(InferenceWaker { number, ready: self.ready.clone() }));
                let room = is_decoupled.then_some(ROOM);
                self.open.insert(number, OpenInference { stream, room, only: None, waker });
                self.poll(number, channel);
            }
            Err(error) => {
                let text = format!("Model {} - Error when running inference: {}", wire.model, error.message);
                give(channel, number, true, Some(Err(Error::internal(text))));
            }
        }
    }

    fn send(
        &self,
        wire: &WireRequest<'_>,
        is_decoupled: bool,
        (channel, outputs): (&WorkerChannel, &SharedArea),
    ) -> Result<ResponseStream, Error> {
        // The tensors are read first, so that the worker gets its memory back whatever follows.
        let reader = TensorReader { channel, outputs };
        let inputs = reader.read(wire.inputs.iter())?;
        let Some(inferer) = &self.model.inferer else {
            return Err(Error::unavailable("the model has no server"));
        };
        let version = (wire.version >= 0).then_some(wire.version);
        if inferer.is_decoupled(wire.model, version)? && !is_decoupled {
            return Err(Error::invalid(decoupled_text(wire.model)));
        }
        if self.open.len() >= MOST_OPEN {
            let text = format!("the model has {MOST_OPEN} open requests to other models, which is the limit");
            return Err(Error::exhausted(text));
        }
        inferer.infer(wire.model, version, request(wire, inputs, channel)?)
    }

    /// Polls the requests with news.
    pub(crate) fn proceed(&mut self, channel: &WorkerChannel) {
        let mut numbers = std::mem::take(&mut *self.ready.numbers.lock());
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().for_each(|number| self.poll(number, channel));
    }

    /// The model does not want more responses.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(open) = self.open.get(&number) {
            open.stream.cancel();
        }
    }

    /// The model has taken responses.
    pub(crate) fn taken(&mut self, number: u64, count: u32, channel: &WorkerChannel) {
        if let Some(OpenInference { room: Some(room), .. }) = self.open.get_mut(&number) {
            *room = room.saturating_add(count).min(ROOM);
            self.poll(number, channel);
        }
    }

    fn poll(&mut self, number: u64, channel: &WorkerChannel) {
        loop {
            let Some(open) = self.open.get_mut(&number) else { return };
            if open.room == Some(0) {
                return;
            }
            let waker = open.waker.clone();
            let Poll::Ready(item) = open.stream.poll_item(&mut Context::from_waker(&waker)) else { return };
            match (item, open.room.as_mut()) {
                (Some(ResponseItem { result, last }), Some(room)) => {
                    *room -= 1;
                    give(channel, number, last, Some(result));
                    if last {
                        self.open.remove(&number);
                    }
                }
                (Some(ResponseItem { result, last }), None) => {
                    // Only a decoupled model sends a second response, and such a model was refused.
                    open.only.get_or_insert(result);
                    if last {
                        self.end(number, channel);
                    }
                }
                (None, _) => self.end(number, channel),
            }
        }
    }

    /// The stream of a request has ended.
    fn end(&mut self, number: u64, channel: &WorkerChannel) {
        let Some(OpenInference { only, room, .. }) = self.open.remove(&number) else { return };
        let missing = || Err(Error::new(ErrorCode::Internal, "expected a single response, got 0"));
        give(channel, number, true, if room.is_some() { None } else { Some(only.unwrap_or_else(missing)) });
    }

    /// Cancels all requests.
    pub(crate) fn end_all(&mut self) {
        self.open.clear();
    }
}

fn request(wire: &WireRequest<'_>, inputs: Vec<Tensor>, channel: &WorkerChannel) -> Result<Request, Error> {
    let id = match wire.correlation_id {
        Ok(number) => NonZeroU64::new(number).map(SequenceId::Number),
        Err("") => None,
        Err(text) => Some(SequenceId::Text(text.into())),
    };
    let parameters =
        parameters_of_json(wire.parameters).map_err(|damage| Error::invalid(damage.0.to_owned()))?;
    let trace = wire.trace.and_then(|handle| {
        let responder = channel.calls.lock().request(handle)?.responder.clone();
        responder.timeline().trace()?.child()
    });
    Ok(Request {
        id: wire.id.into(),
        inputs: RequestInputs::Tensors(inputs),
        outputs: wire.outputs.iter().map(|name| (*name).into()).collect::<OutputSelection>(),
        sequence: SequenceStep { id, start: wire.flags & 1 != 0, end: wire.flags & 2 != 0 },
        timeout: (wire.timeout_us > 0).then(|| Duration::from_micros(wire.timeout_us)),
        parameters,
        trace,
        ..Request::default()
    })
}

/// Gives a response to the worker, the end of the responses, or both.
fn give(channel: &WorkerChannel, number: u64, is_last: bool, result: Option<Result<Response, Error>>) {
    let mut frame = FrameWriter::default();
    let placed = match result {
        None => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(response)) => {
            write_tensors(channel, &mut frame, &response.outputs).map(|places| Some((places, response)))
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
            frame.header.str(&crate::calls::parameters_json(&response.parameters));
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
    channel.send(frame);
}

fn decoupled_text(model: &str) -> String {
    format!(
        "Model {model} is using the decoupled. The current BLS request call doesn't support models using the decoupled \
         transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
    )
}
