//! How a model version uses the server's response cache. It looks a request up before the request is queued. It inserts
//! the answer of a request that the cache did not have.
//!
//! Only a model whose configuration enables `response_cache`, on a server with a cache, uses the cache. The rules of
//! configurations exclude decoupled models and sequence models. A cache that fails only costs time: the request
//! continues as after a miss.
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use inference::{
    EntryId, Error, ErrorCode, ExecutionTimes, InFlightResponse, Name, Outcome, ReportedTimes, Response,
    ResponsePath, ResponseReport, ResponseStream, Timeline, Timestamp, backend::Execution,
    cache::ResponseCache, response_channel,
};
use parking_lot::Mutex;
use scheduling::Meta;
use tokio::runtime::Handle;

use super::{Model, ValidRequest};
use crate::{
    clock::now,
    fingerprint::Fingerprint,
    observe::{Lookup, Record},
};

mod key;

use key::Keys;

/// The server's cache, as one model version uses it.
pub(crate) struct Cached {
    cache: Arc<dyn ResponseCache>,
    keys: Keys,
    /// Runs the tasks that wait for a slow cache.
    runtime: Handle,
    /// Answers whose insertion has not ended. Look-ups find them already.
    arriving: Arc<Mutex<HashMap<String, Response>>>,
}

/// How long a request waits for the cache at most.
const LONGEST_LOOK_UP: Duration = Duration::from_secs(1);

impl Cached {
    pub(crate) fn new(
        cache: Arc<dyn ResponseCache>,
        model: &Name,
        version: i64,
        fingerprint: &Fingerprint,
        runtime: Handle,
    ) -> Self {
        Self { cache, keys: Keys::new(model, version, fingerprint), runtime, arriving: Arc::default() }
    }

    /// Answers a validated request from the cache, or executes it.
    ///
    /// # Errors
    /// Why an input cannot be read, or why the executor refuses the request, if that is known before this function
    /// returns.
    pub(super) fn infer(&self, model: &Arc<Model>, request: ValidRequest) -> Result<ResponseStream, Error> {
        let ValidRequest { mut request, meta, timeline, flow } = request;
        let queued = now();
        // The model must see the bytes that the key describes.
        request.bring_to_host()?;
        let key = self.keys.of(&request)?;
        let began = now();
        let path = Arc::new(CachePath {
            model: model.clone(),
            key,
            lookup: OnceLock::new(),
            answer: Mutex::new(CollectedAnswer::Nothing),
        });
        model.in_flight.begin();
        let (responder, stream) = response_channel(timeline, path.clone(), flow);
        // The order counts from the arrival: the hit of a later request must not pass the answer of an earlier one.
        if let Some(place) = model.orders.place_on_arrival() {
            responder.set_place(place);
        }
        let asking = Asking { execution: Execution::new(request, responder), meta, queued, began, path };
        if let Some(response) = self.arriving.lock().get(&asking.path.key).cloned() {
            asking.answered(Ok(Some(response)))?;
            return Ok(stream);
        }
        let mut look_up = self.cache.look_up(&asking.path.key);
        match look_up.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => asking.answered(found)?,
            Poll::Pending => {
                self.runtime.spawn(async move {
                    let found = tokio::time::timeout(LONGEST_LOOK_UP, look_up).await;
                    let found = found.unwrap_or_else(|_| Err(Error::unavailable("the cache takes too long")));
                    // The client has already received the error.
                    let _ = asking.answered(found);
                });
            }
        }
        Ok(stream)
    }

    /// Inserts an answer into the cache before the client receives it. If the insertion is not done at once, it
    /// continues in the background. Look-ups find the answer meanwhile.
    fn keep(&self, key: &str, response: Response, record: &Arc<Record>, looked_up: Duration) {
        let began = now();
        let mut insertion = self.cache.insert(key, response.clone());
        let pending = PendingInsertion { key: key.to_owned(), record: record.clone(), looked_up, began };
        if let Poll::Ready(kept) = insertion.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return pending.ended(kept);
        }
        self.arriving.lock().insert(key.to_owned(), response);
        let arriving = self.arriving.clone();
        self.runtime.spawn(async move {
            let kept = insertion.await;
            arriving.lock().remove(&pending.key);
            pending.ended(kept);
        });
    }
}

/// An answer whose insertion has not ended.
struct PendingInsertion {
    key: String,
    record: Arc<Record>,
    looked_up: Duration,
    began: Timestamp,
}

impl PendingInsertion {
    /// The insertion has ended, with success or without.
    fn ended(self, kept: Result<(), Error>) {
        match kept {
            // The answer of an equal request has been stored first. As Triton: neither hit nor miss.
            Err(error) if error.code == ErrorCode::AlreadyExists => {
                return self.record.no_cache_miss(self.looked_up);
            }
            Err(error) => log::error!("Failed to insert key [{}] into response cache: {error}", self.key),
            Ok(()) => {}
        }
        self.record.cache_insertion(now() - self.began);
    }
}

/// A request that waits for the result of its look-up.
struct Asking {
    execution: Execution,
    meta: Meta,
    queued: Timestamp,
    began: Timestamp,
    path: Arc<CachePath>,
}

impl Asking {
    /// The look-up has ended: answers the request, or executes it.
    fn answered(self, found: Result<Option<Response>, Error>) -> Result<(), Error> {
        let Self { execution, meta, queued, began, path } = self;
        let times = Lookup { queued, began, ended: now() };
        match found {
            Ok(Some(response)) => {
                path.looked_up(CacheLookup::Hit(times));
                execution.responder.complete(response);
                return Ok(());
            }
            Ok(None) => {}
            // As Triton: a failed look-up counts as a miss. A failed insertion is logged as an error.
            Err(error) => {
                log::debug!("failed to look up key [{}] in response cache: {error}", path.key);
            }
        }
        path.looked_up(CacheLookup::Miss(times));
        path.model.work.enqueue(meta, execution, queued)
    }
}

/// The result of a look-up, with its times.
#[derive(Debug, Clone, Copy)]
enum CacheLookup {
    Hit(Lookup),
    Miss(Lookup),
}

/// The response path of one request of a model with a cache. It counts the hit or the miss, and inserts the answer.
struct CachePath {
    model: Arc<Model>,
    key: String,
    lookup: OnceLock<CacheLookup>,
    answer: Mutex<CollectedAnswer>,
}

/// The responses so far.
enum CollectedAnswer {
    Nothing,
    One(Response),
    /// Errors, or more than one response. A cache cannot store them.
    Other,
}

impl CachePath {
    fn looked_up(&self, lookup: CacheLookup) {
        let _ = self.lookup.set(lookup);
    }

    /// Collects a response of a request that missed the cache. At the end, returns the answer if it is worth storing.
    fn note(&self, response: &InFlightResponse) -> Option<Response> {
        let mut answer = self.answer.lock();
        *answer = match (std::mem::replace(&mut *answer, CollectedAnswer::Other), response.result()) {
            (answer, None) => answer,
            // The clone shares the tensors.
            (CollectedAnswer::Nothing, Some(Ok(response))) => CollectedAnswer::One(response.clone()),
            _ => CollectedAnswer::Other,
        };
        if !matches!(response.outcome(), Some(Outcome::Success)) {
            return None;
        }
        match std::mem::replace(&mut *answer, CollectedAnswer::Other) {
            // An answer without outputs is not worth storing (S-W33).
            CollectedAnswer::One(response) if !response.outputs.is_empty() => Some(response),
            CollectedAnswer::Nothing | CollectedAnswer::One(_) | CollectedAnswer::Other => None,
        }
    }
}

impl ResponsePath for CachePath {
    fn respond(&self, response: InFlightResponse) {
        let lookup = self.lookup.get().copied();
        if let Some(CacheLookup::Hit(times)) = lookup {
            if response.outcome().is_some() {
                let at = now();
                self.model.record.cache_hit(response.timeline(), &times, at);
                response.timeline().ended(at);
                self.model.in_flight.end();
            }
            return self.model.orders.release(response);
        }
        let (answer, succeeded) =
            (self.note(&response), matches!(response.outcome(), Some(Outcome::Success)));
        let missed = lookup.and_then(|lookup| match lookup {
            CacheLookup::Miss(times) if succeeded => Some(times.ended - times.began),
            CacheLookup::Miss(_) | CacheLookup::Hit(_) => None,
        });
        if let Some(looked_up) = missed {
            self.model.record.cache_miss(looked_up);
        }
        // Done before the client has its answer, so that the next equal request finds it.
        if let Some(((cached, answer), looked_up)) = self.model.cached.as_ref().zip(answer).zip(missed) {
            cached.keep(&self.key, answer, &self.model.record, looked_up);
        }
        self.model.respond(response);
    }

    fn cancelled(&self, entry: Option<EntryId>) {
        self.model.cancelled(entry);
    }

    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        self.model.reported(timeline, counted, times);
    }

    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        self.model.batch_reported(execution_times, counted, times);
    }

    fn response_reported(&self, index: u64, report: ResponseReport) {
        self.model.response_reported(index, report);
    }
}
