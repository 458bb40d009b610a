//! The requests of a model to other models (business logic scripting) that are open.
//!
//! The thread that serves the worker polls their responses. It never waits for one of them: a waker rings the alarm of
//! that thread. A worker takes the responses of a decoupled model one by one, and the server gets no more of them than
//! the worker has room for.
use std::{
    collections::HashMap,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use inference::{Inferer, Response, ResponseItem, ResponseStream, lock::Mutex};
use vocabulary::{Error, ErrorCode};

use crate::{model_context::ModelContext, wakeup_fd::WakeupFd};

/// The open requests of one worker.
pub(crate) struct NestedInferences {
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
    alarm: Arc<WakeupFd>,
}

struct InferenceWaker {
    number: u64,
    ready: Arc<ReadyInferences>,
}

/// What a worker gets for a request.
pub(crate) struct InferenceReply {
    pub(crate) number: u64,
    /// Nothing follows.
    pub(crate) is_last: bool,
    /// `None`: only the end.
    pub(crate) result: Option<Result<Response, Error>>,
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

impl NestedInferences {
    pub(crate) fn new(model: Arc<ModelContext>, alarm: Arc<WakeupFd>) -> Self {
        let ready = ReadyInferences { numbers: Mutex::default(), alarm };
        Self { model, open: HashMap::new(), ready: Arc::new(ready) }
    }

    /// What sends a request to that model.
    ///
    /// # Errors
    /// The model is decoupled and the request is not, or the worker has too many requests.
    pub(crate) fn inferer(
        &self,
        model: &str,
        version: Option<i64>,
        is_decoupled: bool,
    ) -> Result<&Arc<dyn Inferer>, Error> {
        let Some(inferer) = &self.model.inferer else {
            return Err(Error::unavailable("the model has no server"));
        };
        if inferer.is_decoupled(model, version)? && !is_decoupled {
            return Err(Error::invalid(decoupled_text(model)));
        }
        if self.open.len() >= MOST_OPEN {
            let text = format!("the model has {MOST_OPEN} open requests to other models, which is the limit");
            return Err(Error::exhausted(text));
        }
        Ok(inferer)
    }

    /// Adds a request that was sent.
    pub(crate) fn add(&mut self, number: u64, stream: ResponseStream, is_decoupled: bool) {
        let waker = Waker::from(Arc::new(InferenceWaker { number, ready: self.ready.clone() }));
        let room = is_decoupled.then_some(ROOM);
        self.open.insert(number, OpenInference { stream, room, only: None, waker });
    }

    /// Takes the numbers of the requests with news.
    pub(crate) fn take_ready(&mut self) -> Vec<u64> {
        let mut numbers = std::mem::take(&mut *self.ready.numbers.lock());
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The model does not want more responses.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(open) = self.open.get(&number) {
            open.stream.cancel();
        }
    }

    /// The model has taken responses.
    pub(crate) fn taken(&mut self, number: u64, count: u32) {
        if let Some(OpenInference { room: Some(room), .. }) = self.open.get_mut(&number) {
            *room = room.saturating_add(count).min(ROOM);
        }
    }

    /// What the worker gets next for a request. `None` if there is nothing yet, or the worker has no room.
    pub(crate) fn next(&mut self, number: u64) -> Option<InferenceReply> {
        loop {
            let open = self.open.get_mut(&number)?;
            if open.room == Some(0) {
                return None;
            }
            let waker = open.waker.clone();
            let Poll::Ready(item) = open.stream.poll_item(&mut Context::from_waker(&waker)) else {
                return None;
            };
            match (item, open.room.as_mut()) {
                (Some(ResponseItem { result, last }), Some(room)) => {
                    *room -= 1;
                    if last {
                        self.open.remove(&number);
                    }
                    return Some(InferenceReply { number, is_last: last, result: Some(result) });
                }
                (Some(ResponseItem { result, last }), None) => {
                    // Only a decoupled model sends a second response, and such a model was refused.
                    open.only.get_or_insert(result);
                    if last {
                        return self.end(number);
                    }
                }
                (None, _) => return self.end(number),
            }
        }
    }

    /// The stream of a request has ended.
    fn end(&mut self, number: u64) -> Option<InferenceReply> {
        let OpenInference { only, room, .. } = self.open.remove(&number)?;
        let missing = || Err(Error::new(ErrorCode::Internal, "expected a single response, got 0"));
        let result = if room.is_some() { None } else { Some(only.unwrap_or_else(missing)) };
        Some(InferenceReply { number, is_last: true, result })
    }

    /// Cancels all requests.
    pub(crate) fn end_all(&mut self) {
        self.open.clear();
    }
}

fn decoupled_text(model: &str) -> String {
    format!(
        "Model {model} is using the decoupled. The current BLS request call doesn't support models using the decoupled \
         transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
    )
}
