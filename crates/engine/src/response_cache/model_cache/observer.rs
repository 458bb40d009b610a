//! The observer of the requests of a model with a cache. It stores answers, and gives them to the requests that wait
//! for them.
use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use host::{now, unix_time};
use inference::{
    BackendReport, EntryId, PassingResponse, ResponseObserver,
    cache::{CacheStatus, CachedAnswer},
    id_prefix,
    rejection::cancelled,
};
use vocabulary::{Error, FailureReason};

use super::{
    AnswerSource, CacheLookup, CacheObserver, Collected, Followers, ModelCache, insertion::Insertion,
};

/// The most bytes of the responses of a decoupled model that are kept until the last one, if the configuration sets no
/// limit.
const MOST_COLLECTED: usize = 1 << 20;

impl CacheObserver {
    /// Called once, before the first response.
    pub(super) fn decide(&self, decision: AnswerSource) {
        let _ = self.decision.set(decision);
    }

    /// Collects a response. After the last one, returns the answer if it is worth storing.
    fn note(&self, response: &PassingResponse<'_>) -> Option<Arc<CachedAnswer>> {
        let mut collected = self.collected.lock();
        if let (Collected::All { responses, bytes }, Some(result)) = (&mut *collected, response.result()) {
            let config = &self.cache.config;
            let most_bytes = self.cache.caching.max_answer_bytes.map_or(MOST_COLLECTED, NonZeroUsize::get);
            match result {
                // The clone shares the tensors.
                Ok(response) if config.decoupled || responses.is_empty() => {
                    *bytes += response.byte_size();
                    responses.push(response.clone());
                    // What is not decoupled has only this response.
                    if config.decoupled && *bytes > most_bytes {
                        *collected = Collected::Unfit;
                    }
                }
                Ok(_) | Err(_) => *collected = Collected::Unfit,
            }
        }
        if !matches!(response.outcome(), Some(Ok(()))) {
            return None;
        }
        match std::mem::take(&mut *collected) {
            // An answer without outputs is not worth storing (S-W33).
            Collected::All { responses, .. }
                if responses.iter().any(|response| !response.outputs.is_empty()) =>
            {
                Some(Arc::new(CachedAnswer { responses, computed: unix_time() }))
            }
            Collected::All { .. } | Collected::Unfit | Collected::Ended(_) => None,
        }
    }

    /// A response of the model has come.
    fn executed(
        &self,
        response: &PassingResponse<'_>,
        (status, leads): (CacheStatus, bool),
        looked_up: Option<Duration>,
    ) {
        if status == CacheStatus::Bypassed {
            return self.account.responding(response);
        }
        let answer = self.note(response);
        let Some(outcome) = response.outcome() else { return self.account.responding(response) };
        let failure = outcome.err().cloned();
        let record = self.account.record();
        let missed = looked_up.filter(|_| failure.is_none());
        if let Some(looked_up) = missed {
            record.cache_miss(looked_up);
        }
        // Stored before the client has its answer, so that the next equal request finds it.
        let stored = answer.clone().filter(|answer| self.cache.may_store(self.key.0, answer));
        let storing = match stored {
            Some(stored) => {
                let insertion = Insertion {
                    cache: self.cache.clone(),
                    key: self.key.clone(),
                    record: record.clone(),
                    looked_up: missed,
                    began: now(),
                    replaces: matches!(status, CacheStatus::TooOld | CacheStatus::Refreshed),
                };
                insertion.begin(stored)
            }
            None => {
                missed.into_iter().for_each(|looked_up| record.cache_miss_ended(looked_up, now()));
                None
            }
        };
        // The flight ends before the client has its answer, too: what it asks for next is a new question.
        if leads {
            let followers = self.take_followers(answer, failure, storing.is_some());
            *self.collected.lock() = Collected::Ended(followers);
        }
        if let Some(storing) = storing {
            self.cache.spawn_insertion(storing, leads.then(|| self.key.clone()));
        }
        self.account.responding(response);
    }

    /// Ends the flight of a leader, or keeps it while its answer is being stored.
    fn take_followers(
        &self,
        answer: Option<Arc<CachedAnswer>>,
        failure: Option<Error>,
        is_being_stored: bool,
    ) -> Followers {
        let (key, turn) = (&self.key, self.request.turn);
        self.cache.with_flights(|flights| match (answer, failure) {
            (Some(answer), _) if is_being_stored => {
                Followers::Share(flights.answered(key, answer.clone()), answer)
            }
            (Some(answer), _) => Followers::Share(flights.end(key), answer),
            (None, None) => Followers::Execute(flights.end_led_by(key, turn)),
            // What concerns only its own client makes another request lead.
            (None, Some(error)) if concerns_its_client(&error) => {
                Followers::LeadOn(flights.lead_next(key, turn))
            }
            (None, Some(error)) => Followers::Fail(flights.end_led_by(key, turn), error),
        })
    }
}

/// Whether an error concerns only the request that has it: its client has gone or reads too slowly, its time is over,
/// or its queue has no room. Equal requests may do better.
fn concerns_its_client(error: &Error) -> bool {
    matches!(error.reason, FailureReason::Cancelled | FailureReason::Rejected)
}

impl Followers {
    /// Called after the leader, whose request has this id, has responded.
    fn go_on(self, leader: &str, cache: &ModelCache) {
        match self {
            Self::Share(requests, answer) => {
                requests.into_iter().for_each(|request| request.collapse(answer.clone()));
            }
            Self::Execute(requests) => requests.into_iter().for_each(CacheLookup::execute_alone),
            Self::Fail(requests, error) => {
                for request in requests {
                    let mut error = error.clone();
                    // Nobody learns the id of another client's request.
                    if let Some(rest) = error.message.strip_prefix(&id_prefix(leader)) {
                        error.message = format!("{}{rest}", id_prefix(&request.observer.request.id)).into();
                    }
                    request.execution.fail(error);
                }
            }
            Self::LeadOn(next) => next.into_iter().for_each(|next| cache.lead_on(next)),
        }
    }
}

impl ResponseObserver for CacheObserver {
    fn responding(&self, response: &PassingResponse<'_>) {
        match self.decision.get() {
            Some(AnswerSource::Hit(times)) => self.account.responding_from_cache(response, times),
            Some(&AnswerSource::Execution { status, leads, looked_up }) => {
                self.executed(response, (status, leads), looked_up);
            }
            // The request has waited for an equal one in vain.
            None => self.account.responding(response),
        }
    }

    fn ended(&self) {
        let collected = std::mem::take(&mut *self.collected.lock());
        if let Collected::Ended(followers) = collected {
            followers.go_on(&self.request.id, &self.cache);
        }
    }

    fn cancelled(&self, entry: Option<EntryId>) {
        let left = self.cache.with_flights(|flights| flights.leave(&self.key, self.request.turn));
        match left {
            Some(request) => request.execution.fail(cancelled()),
            None => self.account.cancelled(entry),
        }
    }

    fn reported(&self, report: BackendReport<'_>) {
        self.account.reported(report);
    }
}
