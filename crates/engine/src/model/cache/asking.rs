//! A request on its way to an answer: from the cache, from an equal request, or from the model.
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use inference::{
    Error, Flow, Name, Request, Timeline, Timestamp,
    backend::Execution,
    cache::{CacheControl, CacheStatus, CachedAnswer},
    response_channel,
};
use scheduling::Meta;

use super::{
    LONGEST_LOOK_UP,
    flights::FlightRole,
    freshness::{Freshness, freshness},
    path::{CachePath, Decision, ExecutionTerms, PathRequest},
};
use crate::{clock::now, observe::Lookup};

/// A request of a model with a cache that has no answer yet.
pub(super) struct AskingRequest {
    pub(super) execution: Box<Execution>,
    pub(super) meta: Meta,
    /// When the request came.
    pub(super) queued: Timestamp,
    /// When the look-up began.
    pub(super) began: Timestamp,
    pub(super) control: CacheControl,
    pub(super) path: Arc<CachePath>,
}

impl AskingRequest {
    /// # Errors
    /// Why the model refuses the request, if it does so on this thread. The request has then been answered.
    pub(super) fn begin(self) -> Result<(), Error> {
        if self.control.bypasses {
            return self.execute(
                CacheStatus::Bypassed,
                ExecutionTerms { stores: false, ..ExecutionTerms::default() },
            );
        }
        if self.control.refreshes {
            let terms = ExecutionTerms { replaces: true, ..ExecutionTerms::default() };
            return self.execute(CacheStatus::Refreshed, terms);
        }
        let cache = self.path.cache.clone();
        let ended = cache.flights.lock().ended();
        match cache.cache.look_up_at_once(&self.path.key.1) {
            None => self.join(None),
            Some(found) => match self.judged(found) {
                Judged::Good(answer, status) => self.hit(answer, status),
                Judged::Missing(status) => self.join(Some((status, ended))),
            },
        }
    }

    /// Waits for an equal request, or leads. `missed` is the result of a look-up, and how many flights had ended before.
    fn join(self, missed: Option<(CacheStatus, u64)>) -> Result<(), Error> {
        let path = self.path.clone();
        let cache = path.cache.clone();
        // Another thread may answer the request as soon as it waits.
        self.execution.responder.timeline().queued(self.queued);
        let mut flights = cache.flights.lock();
        let joined = flights.join(&path.key, path.request.number, self, path.request.deadline);
        let (ended, expiry) = (flights.ended(), flights.next_expiry());
        drop(flights);
        match joined {
            FlightRole::Waits => {
                cache.schedule_expiry(path.request.deadline.and(expiry));
                Ok(())
            }
            FlightRole::Answered(request, answer) => request.collapse(answer),
            FlightRole::Leads(request) => match missed {
                Some((status, before)) if before == ended => request.lead(status),
                // An answer may have been stored since the look-up.
                _ => request.look_up(),
            },
        }
    }

    /// The leader looks the answer up.
    fn look_up(self) -> Result<(), Error> {
        let cache = self.path.cache.clone();
        if let Some(found) = cache.cache.look_up_at_once(&self.path.key.1) {
            return self.looked_up(found);
        }
        let mut look_up = cache.cache.look_up(&self.path.key.1);
        match look_up.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => self.looked_up(found),
            Poll::Pending => {
                cache.runtime.spawn(async move {
                    let found = tokio::time::timeout(LONGEST_LOOK_UP, look_up).await;
                    let found = found.unwrap_or_else(|_| Err(Error::unavailable("the cache takes too long")));
                    // The client has already received the error.
                    let _ = self.looked_up(found);
                });
                Ok(())
            }
        }
    }

    /// The look-up of the leader has ended.
    fn looked_up(self, found: Result<Option<CachedAnswer>, Error>) -> Result<(), Error> {
        match self.judged(found) {
            Judged::Missing(status) => self.lead(status),
            Judged::Good(answer, status) => {
                let waiting = self.path.cache.flights.lock().end(&self.path.key);
                for request in waiting {
                    // The client has already received the error.
                    let _ = request.found(answer.clone());
                }
                self.hit(answer, status)
            }
        }
    }

    /// The leader of a request that waits has found an answer in the cache.
    fn found(self, answer: CachedAnswer) -> Result<(), Error> {
        match self.judged(Ok(Some(answer))) {
            Judged::Good(answer, status) => self.hit(answer, status),
            Judged::Missing(status) => self.execute(status, ExecutionTerms::default()),
        }
    }

    fn judged(&self, found: Result<Option<CachedAnswer>, Error>) -> Judged {
        let answer = match found {
            Ok(Some(answer)) => answer,
            Ok(None) => return Judged::Missing(CacheStatus::Miss),
            // As Triton: a failed look-up counts as a miss. A failed insertion is logged as an error.
            Err(error) => {
                log::debug!("failed to look up key [{}] in response cache: {error}", self.path.key.1);
                return Judged::Missing(CacheStatus::Miss);
            }
        };
        let caching = &self.path.cache.caching;
        // Answers that do not age need no clock.
        let ages = caching.time_to_live.is_some() || self.control.max_age.is_some();
        let age = if ages { answer.age() } else { std::time::Duration::ZERO };
        match freshness(age, caching, self.control) {
            Freshness::Fresh(rest) => Judged::Good(answer, CacheStatus::Hit(rest)),
            Freshness::Stale => Judged::Good(answer, CacheStatus::StaleHit),
            Freshness::TooOld => Judged::Missing(CacheStatus::TooOld),
        }
    }

    /// Answers from the cache. An answer that is stale is computed anew in the background.
    fn hit(self, answer: CachedAnswer, status: CacheStatus) -> Result<(), Error> {
        if status == CacheStatus::StaleHit {
            self.refresh();
        }
        self.answer(answer, status);
        Ok(())
    }

    /// An equal request has got this answer.
    pub(super) fn collapse(self, answer: Arc<CachedAnswer>) -> Result<(), Error> {
        self.answer(Arc::unwrap_or_clone(answer), CacheStatus::Collapsed);
        Ok(())
    }

    fn answer(self, answer: CachedAnswer, status: CacheStatus) {
        let times = Lookup { queued: self.queued, began: self.began, ended: now() };
        self.path.decide(Decision::Hit(times));
        let responder = self.execution.responder;
        responder.timeline().set_cache_status(status);
        let mut responses = answer.responses.into_iter().peekable();
        while let Some(response) = responses.next() {
            if responses.peek().is_none() {
                return responder.complete(response);
            }
            responder.send(response);
        }
        responder.finish();
    }

    /// Executes the request, whose answer is for all that wait for it.
    fn lead(self, status: CacheStatus) -> Result<(), Error> {
        let replaces = status == CacheStatus::TooOld;
        self.execute(status, ExecutionTerms { leads: true, replaces, ..ExecutionTerms::default() })
    }

    /// Leads after a leader that has gone.
    pub(super) fn lead_on(self) {
        // The client has already received the error.
        let _ = self.lead(CacheStatus::Miss);
    }

    /// Executes the request for itself alone.
    pub(super) fn execute_alone(self) {
        // The client has already received the error.
        let _ = self.execute(CacheStatus::Miss, ExecutionTerms::default());
    }

    fn execute(self, status: CacheStatus, terms: ExecutionTerms) -> Result<(), Error> {
        let Self { execution, meta, queued, began, control, path } = self;
        let asked = !control.bypasses && !control.refreshes;
        let looked_up = asked.then(|| now() - began);
        execution.responder.timeline().set_cache_status(status);
        path.decide(Decision::Execution { terms, looked_up });
        path.model.work.enqueue(meta, execution, queued)
    }

    /// Has the model compute a new answer for later requests, unless it does so already.
    fn refresh(&self) {
        let CachePath { model, cache, key, .. } = &*self.path;
        if model.in_flight.is_draining() || cache.flights.lock().has(key) {
            return;
        }
        let shared = self.execution.request.share();
        let request = Request { timeout: None, trace: None, client: None, ..shared };
        let number = cache.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let asked = PathRequest { id: Name::new(""), number, deadline: None };
        let path = Arc::new(CachePath::new(model, cache, key.clone(), asked));
        model.in_flight.begin();
        let timeline = Timeline::new(now(), self.execution.responder.timeline().rows);
        let (responder, mut unread) = response_channel(timeline, path.clone(), Flow::unlimited());
        if let Some(place) = model.orders.place_on_arrival() {
            responder.set_place(place);
        }
        let execution = Box::new(Execution::new(request, responder));
        let (meta, control, began) = (self.meta.clone(), CacheControl::default(), now());
        let refreshing = Self { execution, meta, queued: began, began, control, path };
        let lone = refreshing.path.clone();
        let joined = cache.flights.lock().join(key, lone.request.number, refreshing, None);
        // If another request leads meanwhile, this one waits with the others, and nobody reads its answer.
        match joined {
            FlightRole::Leads(request) => _ = request.lead(CacheStatus::TooOld),
            FlightRole::Answered(request, answer) => _ = request.collapse(answer),
            FlightRole::Waits => {}
        }
        cache.runtime.spawn(async move { while unread.next().await.is_some() {} });
    }
}

/// What a look-up means for a request.
enum Judged {
    /// This answer is good enough.
    Good(CachedAnswer, CacheStatus),
    /// The model must answer.
    Missing(CacheStatus),
}
