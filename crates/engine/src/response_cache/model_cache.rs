//! The cache of a model version, and the two things that know it and each other: a request that asks it, and the
//! observer of the responses to that request. What they do is in the children.
use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::Duration,
};

use config::{ModelConfig, ResponseCaching, Scheduling};
use futures_util::future::BoxFuture;
use host::{TimerTarget, now};
use inference::{
    Request, Response, ResponseStream, Timeline, Timestamp, UnreadPolicy,
    backend::Execution,
    cache::{CacheStatus, CachedAnswer, ResponseCache},
    lock::Mutex,
    rejection, response_channel,
};
use scheduling::SchedulingAttributes;
use smallvec::SmallVec;
use vocabulary::{Error, Name};

use super::{
    flights::{FlightKey, FlightTurn, Flights},
    key::CacheKeys,
};
use crate::{
    account::{LookupTimes, RequestAccount},
    fingerprint::Fingerprint,
    server_parts::ServerParts,
};

mod asking;
mod insertion;
mod observer;

/// How long a request waits for the cache at most.
const LONGEST_LOOK_UP: Duration = Duration::from_secs(1);

/// The server's cache, as one model version uses it.
pub(crate) struct ModelCache {
    cache: Arc<dyn ResponseCache>,
    keys: CacheKeys,
    config: Arc<ModelConfig>,
    caching: ResponseCaching,
    server: Arc<ServerParts>,
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
    waiting: VecDeque<CacheLookup>,
    /// A thread lets them lead. Others only add to them.
    is_running: bool,
}

type ModelFlights = Flights<CacheLookup, Arc<CachedAnswer>>;

/// A request that has been validated, and what its response channel is made of.
pub(crate) struct ValidRequest {
    pub(crate) request: Request,
    pub(crate) attributes: SchedulingAttributes,
    pub(crate) timeline: Timeline,
    pub(crate) flow: UnreadPolicy,
}

/// A request of a model with a cache that has no answer yet.
struct CacheLookup {
    execution: Box<Execution>,
    attributes: SchedulingAttributes,
    /// When the request came.
    queued: Timestamp,
    /// When the look-up began.
    began: Timestamp,
    observer: Arc<CacheObserver>,
}

/// Sees the responses to one request.
struct CacheObserver {
    account: Arc<RequestAccount>,
    cache: Arc<ModelCache>,
    key: FlightKey,
    request: ObservedRequest,
    /// Not set while the request looks up or waits.
    decision: OnceLock<AnswerSource>,
    collected: Mutex<Collected>,
}

/// What the observer knows of its request.
struct ObservedRequest {
    /// The id that the client has given.
    id: Name,
    /// Which of equal requests leads.
    turn: FlightTurn,
    /// When the request would have waited too long in the queue.
    deadline: Option<Timestamp>,
}

/// Where the answer comes from.
#[derive(Debug, Clone, Copy)]
enum AnswerSource {
    /// From the cache, or from an equal request.
    Hit(LookupTimes),
    /// From the model.
    Execution {
        /// Why.
        status: CacheStatus,
        /// The answer is for all requests of the flight.
        leads: bool,
        /// How long the look-up took. `None`: the client did not want it.
        looked_up: Option<Duration>,
    },
}

/// The responses so far.
#[derive(Default)]
enum Collected {
    All {
        responses: SmallVec<[Response; 1]>,
        bytes: usize,
    },
    /// Errors, or more than a cache may store.
    #[default]
    Unfit,
    /// The last response of a leader is on its way. These go on after it.
    Ended(Followers),
}

/// The requests that have waited for a leader, and what becomes of them.
enum Followers {
    /// They get its answer.
    Share(Vec<CacheLookup>, Arc<CachedAnswer>),
    /// Its answer cannot be shared: each executes for itself.
    Execute(Vec<CacheLookup>),
    /// They fail as it did.
    Fail(Vec<CacheLookup>, Error),
    /// One of them leads the others.
    LeadOn(Option<CacheLookup>),
}

/// What a [`ModelCache`] is made of.
pub(crate) struct ModelCacheParts {
    /// The server's cache, or the model's part of it.
    pub(crate) cache: Arc<dyn ResponseCache>,
    pub(crate) config: Arc<ModelConfig>,
    pub(crate) version: i64,
    /// What distinguishes the answers of this version from those of others.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caching: ResponseCaching,
    pub(crate) server: Arc<ServerParts>,
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
    pub(crate) fn new(parts: ModelCacheParts) -> Arc<Self> {
        let ModelCacheParts { cache, config, version, fingerprint, caching, server } = parts;
        Arc::new(Self {
            keys: CacheKeys::new(&config.name, version, &fingerprint),
            cache,
            config,
            caching,
            server,
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
    pub(crate) fn infer(
        self: &Arc<Self>,
        account: &Arc<RequestAccount>,
        request: ValidRequest,
    ) -> Result<ResponseStream, Error> {
        let queued = now();
        let mut request = request;
        // The model must see the bytes that the key describes.
        request.request.bring_to_host()?;
        let key = self.keys.of(&request.request, self.cache.secret())?;
        let (asking, stream) = self.ask(account, request, (self.emptied.load(SeqCst), key), queued);
        asking.begin()?;
        Ok(stream)
    }

    /// A request that came at `queued` and asks for the answer with this key, and the stream of its responses.
    fn ask(
        self: &Arc<Self>,
        account: &Arc<RequestAccount>,
        request: ValidRequest,
        key: FlightKey,
        queued: Timestamp,
    ) -> (CacheLookup, ResponseStream) {
        let ValidRequest { request, attributes, timeline, flow } = request;
        let observer = Arc::new(CacheObserver {
            account: account.clone(),
            cache: self.clone(),
            key,
            request: ObservedRequest {
                id: request.id.clone(),
                turn: FlightTurn {
                    level: self.queue_level(&attributes),
                    number: self.next.fetch_add(1, Relaxed),
                },
                deadline: self.queue_deadline(&attributes, &request, queued),
            },
            decision: OnceLock::new(),
            collected: Mutex::new(Collected::All { responses: SmallVec::new(), bytes: 0 }),
        });
        account.open().begin();
        let (responder, stream) = response_channel(timeline, observer.clone(), flow);
        // The order counts from the arrival: the hit of a later request must not pass the answer of an earlier one.
        if let Some(order) = account.runner().response_order() {
            responder.line_up(order);
        }
        // A request moves several times until it has its answer, so that it does so in a box.
        let execution = Box::new(Execution::new(request, responder));
        (CacheLookup { execution, attributes, queued, began: now(), observer }, stream)
    }

    /// When a request that comes `at` this time has waited too long for its turn, if there is such a time.
    fn queue_deadline(
        &self,
        attributes: &SchedulingAttributes,
        request: &Request,
        at: Timestamp,
    ) -> Option<Timestamp> {
        match &self.config.scheduling {
            Scheduling::Dynamic(dynamic) => dynamic.rejection_time(at, attributes),
            Scheduling::Ensemble(_) => request.timeout.map(|timeout| at + timeout),
            Scheduling::Unbatched | Scheduling::Sequence(_) => None,
        }
    }

    /// The priority level in which a request waits. A lower one is more urgent.
    fn queue_level(&self, attributes: &SchedulingAttributes) -> u64 {
        match &self.config.scheduling {
            Scheduling::Dynamic(dynamic) => dynamic.level(attributes.priority),
            Scheduling::Unbatched | Scheduling::Sequence(_) | Scheduling::Ensemble(_) => 0,
        }
    }

    /// Removes all answers of the model version, also those that are being computed. Returns how many there were.
    ///
    /// # Errors
    /// UNSUPPORTED if the cache cannot remove answers, or why it has not.
    pub(crate) async fn empty(&self) -> Result<u64, Error> {
        self.emptied.fetch_add(1, SeqCst);
        self.cache.remove_all(self.keys.prefix()).await
    }

    /// Lets a request lead after a leader that has gone. If it is refused at once, the next one leads, in a loop: a
    /// chain of refusals needs no stack.
    fn lead_on(&self, next: CacheLookup) {
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
    fn spawn_insertion(self: &Arc<Self>, rest: BoxFuture<'static, ()>, flight: Option<FlightKey>) {
        let cache = self.clone();
        self.server.runtime.spawn(async move {
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
            self.server.threads.clock.wake_at(at, Arc::downgrade(&target));
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
