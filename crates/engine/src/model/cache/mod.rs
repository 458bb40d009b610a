//! How a model version uses the server's response cache. It looks a request up before the request is queued. It stores
//! the answer of a request that the cache did not have. Equal requests at the same time run once.
//!
//! Only a model whose configuration enables `response_cache`, on a server with a cache, uses the cache. The rules of
//! configurations exclude sequence models. A cache that fails only costs time: the request continues as after a miss.
use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::BoxFuture;
use inference::{
    Error, ErrorCode, Name, ResponseStream, Timestamp,
    backend::Execution,
    cache::{CachedAnswer, ResponseCache, StorageTerms},
    config::ResponseCaching,
    lock::Mutex,
    response_channel,
};
use tokio::runtime::Handle;

use super::{Model, ValidRequest};
use crate::{
    clock::{TimerTarget, TimerThread, now},
    fingerprint::Fingerprint,
    observe::Record,
    rejection,
};

mod asking;
mod flights;
mod freshness;
mod key;
mod path;

use asking::AskingRequest;
use flights::{FlightKey, FlightTurn, Flights};
use key::Keys;
use path::{CachePath, PathRequest};

/// How long a request waits for the cache at most.
const LONGEST_LOOK_UP: Duration = Duration::from_secs(1);

/// The server's cache, as one model version uses it.
pub(crate) struct ModelCache {
    cache: Arc<dyn ResponseCache>,
    keys: Keys,
    caching: ResponseCaching,
    /// Runs the tasks that wait for a slow cache.
    runtime: Handle,
    clock: TimerThread,
    flights: Mutex<ModelFlights>,
    /// Requests that lead after leaders that have gone.
    successors: Mutex<Successors>,
    /// The number of flights that have ended.
    ended_flights: AtomicU64,
    /// The number of the next request.
    next: AtomicU64,
    /// How often the cache has been emptied. Answers to earlier requests are not stored.
    emptied: AtomicU64,
}

#[derive(Default)]
struct Successors {
    waiting: VecDeque<AskingRequest>,
    /// A thread lets them lead. Others only add to them.
    is_running: bool,
}

type ModelFlights = Flights<AskingRequest, Arc<CachedAnswer>>;

/// What a [`ModelCache`] is made of.
pub(crate) struct ModelCacheParts<'a> {
    /// The server's cache, or the model's part of it.
    pub(crate) cache: Arc<dyn ResponseCache>,
    pub(crate) model: &'a Name,
    pub(crate) version: i64,
    /// What distinguishes the answers of this version from those of others.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caching: ResponseCaching,
    pub(crate) runtime: Handle,
    pub(crate) clock: TimerThread,
}

/// The server's cache as a model with this configuration uses it. May block.
///
/// # Errors
/// INVALID_ARG if the model asks for what the cache cannot do.
pub(crate) fn cache_for_model(
    cache: &Arc<dyn ResponseCache>,
    model: &Name,
    caching: &ResponseCaching,
) -> Result<Arc<dyn ResponseCache>, Error> {
    if caching.time_to_live.is_some() && !cache.replaces_answers() {
        return Err(Error::invalid(format!(
            "answers of model '{model}' would age ('parameters.CACHE_TTL_SECONDS'), but cache '{}' never replaces an answer",
            cache.name()
        )));
    }
    match caching.quota_bytes {
        Some(quota) => cache.with_quota(model, quota.get()),
        None => Ok(cache.clone()),
    }
}

impl ModelCache {
    pub(crate) fn new(parts: ModelCacheParts<'_>) -> Arc<Self> {
        let ModelCacheParts { cache, model, version, fingerprint, caching, runtime, clock } = parts;
        Arc::new(Self {
            keys: Keys::new(model, version, &fingerprint),
            cache,
            caching,
            runtime,
            clock,
            flights: Mutex::default(),
            successors: Mutex::default(),
            ended_flights: AtomicU64::new(0),
            next: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
        })
    }

    /// Answers a validated request from the cache, or executes it.
    ///
    /// # Errors
    /// Why an input cannot be read, or why the executor refuses the request, if that is known before this function
    /// returns.
    pub(super) fn infer(
        self: &Arc<Self>,
        model: &Arc<Model>,
        request: ValidRequest,
    ) -> Result<ResponseStream, Error> {
        let queued = now();
        let mut request = request;
        // The model must see the bytes that the key describes.
        request.request.bring_to_host()?;
        let key = self.keys.of(&request.request, self.cache.secret())?;
        let (asking, stream) = self.ask(model, request, (self.emptied.load(SeqCst), key), queued);
        asking.begin()?;
        Ok(stream)
    }

    /// A request that came at `queued` and asks for the answer with this key, and the stream of its responses.
    fn ask(
        self: &Arc<Self>,
        model: &Arc<Model>,
        request: ValidRequest,
        key: FlightKey,
        queued: Timestamp,
    ) -> (AskingRequest, ResponseStream) {
        let ValidRequest { request, meta, timeline, flow } = request;
        let path = Arc::new(CachePath::new(
            model,
            self,
            key,
            PathRequest {
                id: request.id.clone(),
                turn: FlightTurn { level: model.queue_level(&meta), number: self.next.fetch_add(1, Relaxed) },
                deadline: model.queue_deadline(&meta, &request, queued),
            },
        ));
        model.in_flight.begin();
        let (responder, stream) = response_channel(timeline, path.clone(), flow);
        // The order counts from the arrival: the hit of a later request must not pass the answer of an earlier one.
        if let Some(place) = model.orders.place_on_arrival() {
            responder.set_place(place);
        }
        // A request moves several times until it has its answer, so that it does so in a box.
        let execution = Box::new(Execution::new(request, responder));
        (AskingRequest { execution, meta, queued, began: now(), path }, stream)
    }

    /// Removes all answers of the model version, also those that are being computed. Returns how many there were.
    ///
    /// # Errors
    /// UNSUPPORTED if the cache cannot remove answers, or why it has not.
    pub(crate) async fn empty(&self) -> Result<u64, Error> {
        self.emptied.fetch_add(1, SeqCst);
        self.cache.remove_all(self.keys.prefix()).await
    }

    /// Lets a request lead after a leader that has gone. If it is refused at once, the next one leads, in a loop: a chain
    /// of refusals needs no stack.
    fn lead_on(&self, next: AskingRequest) {
        let mut successors = self.successors.lock();
        successors.waiting.push_back(next);
        if std::mem::replace(&mut successors.is_running, true) {
            return;
        }
        let mut first_panic = None;
        while let Some(next) = successors.waiting.pop_front() {
            drop(successors);
            // A client's waker may panic. The others lead nevertheless.
            let led = catch_unwind(AssertUnwindSafe(|| next.lead_on()));
            first_panic = first_panic.or(led.err());
            successors = self.successors.lock();
        }
        successors.is_running = false;
        drop(successors);
        if let Some(panic) = first_panic {
            resume_unwind(panic);
        }
    }

    /// Changes the flights.
    fn with_flights<R>(&self, change: impl FnOnce(&mut ModelFlights) -> R) -> R {
        let mut flights = self.flights.lock();
        let result = change(&mut flights);
        self.ended_flights.store(flights.ended(), Release);
        result
    }

    /// The number of flights that have ended, without the lock: a hit needs none.
    fn ended_flights(&self) -> u64 {
        self.ended_flights.load(Acquire)
    }

    /// Continues an insertion in the background. After it, ends the flight of the answer, if it has one.
    fn spawn_insertion(self: &Arc<Self>, rest: RestOfInsertion, flight: Option<FlightKey>) {
        let cache = self.clone();
        self.runtime.spawn(async move {
            rest.await;
            // All that waited have had the answer before it was stored.
            flight.into_iter().for_each(|key| drop(cache.with_flights(|flights| flights.end(&key))));
        });
    }

    /// Whether an answer may be stored that was asked for when the cache had been emptied so often.
    fn may_store(&self, emptied: u64, answer: &CachedAnswer) -> bool {
        let fits = |max: NonZeroUsize| answer.byte_size() <= max.get();
        emptied == self.emptied.load(SeqCst) && self.caching.max_answer_bytes.is_none_or(fits)
    }

    /// Rejects the requests that have waited too long for an equal one.
    fn expire(&self) {
        let late = self.with_flights(|flights| flights.expire(now()));
        for request in late {
            request.execution.fail(rejection::timed_out());
        }
    }

    /// Has [`expire`](Self::expire) called in time.
    fn schedule_expiry(self: &Arc<Self>, at: Option<Timestamp>) {
        if let Some(at) = at {
            let target: Arc<dyn TimerTarget> = self.clone();
            self.clock.wake_at(at, Arc::downgrade(&target));
        }
    }
}

impl TimerTarget for ModelCache {
    fn wake(self: Arc<Self>) {
        self.expire();
        let next = self.with_flights(|flights| flights.next_expiry());
        self.schedule_expiry(next);
    }
}

/// What remains of an insertion that the cache could not do at once.
type RestOfInsertion = BoxFuture<'static, ()>;

/// An answer that is being stored.
struct Insertion {
    cache: Arc<ModelCache>,
    key: FlightKey,
    record: Arc<Record>,
    /// How long the look-up took, if there was one.
    looked_up: Option<Duration>,
    began: Timestamp,
    /// The answer takes the place of another one.
    replaces: bool,
}

impl Insertion {
    /// Returns the rest of the insertion, if the cache cannot store the answer at once.
    fn begin(self, answer: Arc<CachedAnswer>) -> Option<RestOfInsertion> {
        let ModelCache { cache, caching, .. } = &*self.cache;
        let lifetime = caching.time_to_live.map(|time_to_live| time_to_live + caching.stale_time);
        let terms = StorageTerms { lifetime, replaces: self.replaces || lifetime.is_some() };
        let mut storing = cache.insert(&self.key.1, answer, terms);
        if let Poll::Ready(stored) = storing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.end(stored);
            return None;
        }
        Some(Box::pin(async move { self.end(storing.await) }))
    }

    /// The insertion has ended, with success or without.
    fn end(self, stored: Result<(), Error>) {
        match (stored, self.looked_up) {
            // The answer of an equal request has been stored first. As Triton: neither hit nor miss.
            (Err(error), looked_up) if error.code == ErrorCode::AlreadyExists => {
                looked_up.into_iter().for_each(|looked_up| self.record.no_cache_miss(looked_up));
            }
            (stored, looked_up) => {
                if let Err(error) = stored {
                    log::error!("Failed to insert key [{}] into response cache: {error}", self.key.1);
                }
                if looked_up.is_some() {
                    let at = now();
                    self.record.cache_insertion(self.looked_up, at - self.began, at);
                }
            }
        }
        if self.key.0 != self.cache.emptied.load(SeqCst) {
            // The cache has been emptied, perhaps before the answer was in it.
            let removal = self.cache.cache.remove_all(&self.key.1);
            self.cache.runtime.spawn(removal);
        }
    }
}
