//! A request on its way to an answer: from the cache, from an equal request, or from the model.
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use host::{now, unix_time};
use inference::{
    Request, RunThread, Timeline, UnreadPolicy,
    cache::{CacheControl, CacheStatus, CachedAnswer},
};
use vocabulary::Error;

use super::{AnswerSource, CacheLookup, CacheObserver, LONGEST_LOOK_UP, ValidRequest};
use crate::{
    account::LookupTimes,
    response_cache::{
        flights::FlightRole,
        freshness::{Freshness, freshness},
    },
};

impl CacheLookup {
    /// # Errors
    /// Why the model refuses the request, if it does so on this thread. The request has then been answered.
    pub(super) fn begin(self) -> Result<(), Error> {
        let control = self.execution.request.cache_control;
        if control.bypasses {
            return self.execute(CacheStatus::Bypassed, RunThread::CallersMay);
        }
        if control.refreshes {
            return self.execute(CacheStatus::Refreshed, RunThread::CallersMay);
        }
        let cache = self.observer.cache.clone();
        let ended = cache.ended_flights();
        match cache.cache.look_up_at_once(&self.observer.key.1) {
            None => self.join(None),
            Some(found) => match self.judged(found) {
                LookupResult::Good(answer, status) => self.hit(answer, status),
                LookupResult::Missing(status) => self.join(Some((status, ended))),
            },
        }
    }

    /// Waits for an equal request, or leads. `missed` is the result of a look-up, and how many flights had ended before.
    fn join(self, missed: Option<(CacheStatus, u64)>) -> Result<(), Error> {
        let observer = self.observer.clone();
        let cache = observer.cache.clone();
        // Another thread may answer the request as soon as it waits.
        self.execution.responder.timeline().queued(self.queued, self.execution.request.tensors());
        let (role, ended, expiry) = cache.with_flights(|flights| {
            let role = flights.join(&observer.key, observer.request.turn, self, observer.request.deadline);
            (role, flights.ended(), flights.next_expiry())
        });
        match role {
            FlightRole::Waits => {
                cache.schedule_expiry(observer.request.deadline.and(expiry));
                Ok(())
            }
            FlightRole::Answered(request, answer) => {
                request.collapse(answer);
                Ok(())
            }
            FlightRole::Leads(request) => match missed {
                Some((status, before)) if before == ended => request.lead(status, RunThread::CallersMay),
                // An answer may have been stored since the look-up.
                _ => request.look_up(),
            },
        }
    }

    /// The leader looks the answer up.
    fn look_up(self) -> Result<(), Error> {
        let cache = self.observer.cache.clone();
        if let Some(found) = cache.cache.look_up_at_once(&self.observer.key.1) {
            return self.looked_up(found);
        }
        let mut look_up = cache.cache.look_up(&self.observer.key.1);
        match look_up.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => self.looked_up(found),
            Poll::Pending => {
                cache.server.runtime.spawn(async move {
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
            LookupResult::Missing(status) => self.lead(status, RunThread::CallersMay),
            LookupResult::Good(answer, status) => {
                let waiting = self.observer.cache.with_flights(|flights| flights.end(&self.observer.key));
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
            LookupResult::Good(answer, status) => self.hit(answer, status),
            LookupResult::Missing(status) => self.execute(status, RunThread::OnlyOwn),
        }
    }

    fn judged(&self, found: Result<Option<CachedAnswer>, Error>) -> LookupResult {
        let answer = match found {
            Ok(Some(answer)) => answer,
            Ok(None) => return LookupResult::Missing(CacheStatus::Miss),
            // As Triton: a failed look-up counts as a miss. A failed insertion is logged as an error.
            Err(error) => {
                let (model, request_id) = (&self.observer.cache.config.name, &self.observer.request.id);
                let key = &self.observer.key.1;
                log::debug!(model:%, request_id:%; "failed to look up key [{key}] in response cache: {error}");
                return LookupResult::Missing(CacheStatus::Miss);
            }
        };
        let (caching, control) = (&self.observer.cache.caching, self.execution.request.cache_control);
        // Answers that do not age need no clock.
        let ages = caching.time_to_live.is_some() || control.max_age.is_some();
        let age = if ages { answer.age(unix_time()) } else { Duration::ZERO };
        match freshness(age, caching, control) {
            Freshness::Fresh(rest) => LookupResult::Good(answer, CacheStatus::Hit(rest)),
            Freshness::Stale => LookupResult::Good(answer, CacheStatus::StaleHit),
            Freshness::TooOld => LookupResult::Missing(CacheStatus::TooOld),
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
    pub(super) fn collapse(self, answer: Arc<CachedAnswer>) {
        self.answer(Arc::unwrap_or_clone(answer), CacheStatus::Collapsed);
    }

    fn answer(self, answer: CachedAnswer, status: CacheStatus) {
        let times = LookupTimes { queued: self.queued, began: self.began, ended: now() };
        self.observer.decide(AnswerSource::Hit(times));
        let execution = self.execution;
        execution.responder.timeline().set_cache_status(status);
        let mut responses = answer.responses.into_iter().peekable();
        while let Some(response) = responses.next() {
            if responses.peek().is_none() {
                return execution.complete(response);
            }
            execution.responder.send(response);
        }
        execution.finish();
    }

    /// Executes the request, whose answer is for all that wait for it.
    fn lead(self, status: CacheStatus, thread: RunThread) -> Result<(), Error> {
        self.execute_as(status, true, thread)
    }

    /// Leads after a leader that has gone. The thread is that leader's, a plug-in's or the timer's.
    pub(super) fn lead_on(self) {
        // The client has already received the error.
        let _ = self.lead(CacheStatus::Miss, RunThread::OnlyOwn);
    }

    /// Executes the request for itself alone, because the answer of the leader cannot be shared.
    pub(super) fn execute_alone(self) {
        // The client has already received the error.
        let _ = self.execute(CacheStatus::Miss, RunThread::OnlyOwn);
    }

    /// Executes the request, for itself alone.
    fn execute(self, status: CacheStatus, thread: RunThread) -> Result<(), Error> {
        self.execute_as(status, false, thread)
    }

    fn execute_as(self, status: CacheStatus, leads: bool, thread: RunThread) -> Result<(), Error> {
        let Self { execution, mut attributes, queued, began, observer } = self;
        // A request that has waited for an equal one does not wait its time again.
        attributes.waits_since = Some(queued);
        execution.responder.timeline().set_cache_status(status);
        let has_asked = matches!(status, CacheStatus::Miss | CacheStatus::TooOld);
        let looked_up = has_asked.then(|| now() - began);
        observer.decide(AnswerSource::Execution { status, leads, looked_up });
        observer.account.runner().clone().enqueue(attributes, execution, queued, thread)
    }

    /// Has the model compute a new answer for later requests, unless it does so already.
    fn refresh(&self) {
        let CacheObserver { account, cache, key, .. } = &*self.observer;
        if account.open().is_draining() || cache.with_flights(|flights| flights.has(key)) {
            return;
        }
        let queued = now();
        let request = Request {
            timeout: None,
            trace: None,
            client: None,
            cache_control: CacheControl::default(),
            ..self.execution.request.share()
        };
        let timeline = Timeline::new(queued, self.execution.responder.timeline().rows);
        let valid = ValidRequest {
            request,
            attributes: self.attributes.clone(),
            timeline,
            flow: UnreadPolicy::unlimited(),
        };
        let (asking, mut unread) = cache.ask(account, valid, key.clone(), queued);
        let turn = asking.observer.request.turn;
        // If another request leads meanwhile, this one waits with the others, and nobody reads its answer.
        match cache.with_flights(|flights| flights.join(key, turn, asking, None)) {
            FlightRole::Leads(request) => _ = request.lead(CacheStatus::TooOld, RunThread::OnlyOwn),
            FlightRole::Answered(request, answer) => request.collapse(answer),
            FlightRole::Waits => {}
        }
        cache.server.runtime.spawn(async move { while unread.next().await.is_some() {} });
    }
}

/// What a look-up means for a request.
enum LookupResult {
    /// This answer is good enough.
    Good(CachedAnswer, CacheStatus),
    /// The model must answer.
    Missing(CacheStatus),
}
