//! What a model version has to do with the server's response cache: it is asked before a request is queued, and told when
//! the model has answered one that it did not know.
//!
//! Only models whose configuration enables `response_cache` on a server with a cache have one. They are neither
//! decoupled nor of sequences, which the rules of configurations see to. A cache that fails costs time and nothing else:
//! the request goes on as if nothing had been found.
use std::{sync::Arc, time::Duration};

use inference::{
    Error, ErrorCode, InFlightResponse, Name, Request, Responder, Response, ResponseInterceptor,
    ResponseStream, Timeline, Timestamp, cache::ResponseCache, response_channel,
};
use parking_lot::Mutex;

use super::{Model, order::OrderedInterceptor};
use crate::{
    clock::now,
    observe::{Lookup, Uncounted},
    repository::Fingerprint,
};

mod key;
mod packed;

use key::Keys;

/// The server's cache, as one model version uses it.
pub(crate) struct Cached {
    cache: Arc<dyn ResponseCache>,
    keys: Keys,
}

/// What the cache says to a request.
pub(super) enum CacheLookup {
    /// The answer.
    Hit(Response, Lookup),
    /// Nothing, or nothing useful.
    Miss(Miss),
}

/// A request that the cache does not know.
pub(super) struct Miss {
    key: String,
    lookup: Lookup,
}

impl Cached {
    pub(crate) fn new(
        cache: Arc<dyn ResponseCache>,
        model: &Name,
        version: i64,
        fingerprint: &Fingerprint,
    ) -> Self {
        Self { cache, keys: Keys::new(model, version, fingerprint) }
    }

    /// Asks for the answer to a request that has been checked against the configuration.
    pub(super) fn look_up(&self, request: &Request) -> CacheLookup {
        let queued = now();
        let key = self.keys.of(request);
        let began = now();
        let found = self.read(&key);
        let lookup = Lookup { queued, began, ended: now() };
        match found {
            Ok(Some(response)) => return CacheLookup::Hit(response, lookup),
            Ok(None) => {}
            // As Triton: no more than a miss. A cache that is out of order is reported when something is to be stored.
            Err(error) => log::debug!("failed to look up key [{key}] in response cache: {error}"),
        }
        CacheLookup::Miss(Miss { key, lookup })
    }

    fn read(&self, key: &str) -> Result<Option<Response>, Error> {
        let mut response = None;
        let found = self.cache.lookup(key, &mut |buffers| {
            let [buffer] = buffers else { return Err(unexpected_count(buffers.len())) };
            response = Some(packed::read(buffer)?);
            Ok(())
        })?;
        Ok(response.filter(|_| found))
    }

    fn store(&self, key: &str, response: &Response) -> Result<(), Error> {
        self.cache.insert(key, &[packed::size(response)], &mut |buffers| {
            let [buffer] = buffers else { unreachable!("a cache gives as many buffers as it is asked for") };
            packed::write(response, buffer);
        })
    }
}

fn unexpected_count(count: usize) -> Error {
    Error::internal(format!(
        "Expected number of responses in cache does not match. Expected: 1, received: {count}"
    ))
}

impl Model {
    /// Asks the cache, if the model has one and takes requests at all.
    pub(super) fn look_up(&self, request: &Request) -> Option<CacheLookup> {
        let cached = self.cached.as_ref()?;
        (!self.is_draining()).then(|| cached.look_up(request))
    }

    /// Answers a request without queue and execution.
    pub(super) fn answer_from_cache(
        &self,
        response: Response,
        lookup: &Lookup,
        timeline: Timeline,
        capacity: usize,
    ) -> ResponseStream {
        // It is over before anybody could cancel it or wait for it.
        let (responder, stream) = response_channel(timeline, Arc::new(Uncounted), capacity);
        if let Some(place) = self.orders.next() {
            responder.intercept_with(Arc::new(place));
        }
        self.record.cache_hit(stream.timeline(), lookup, now());
        responder.complete(response);
        stream
    }

    /// Has the answer to a request kept that the cache does not know. Gives when the request came to the scheduler,
    /// whose work begins with the cache.
    pub(super) fn keep_answer(self: &Arc<Self>, miss: Miss, responder: &Responder) -> Timestamp {
        let queued = miss.lookup.queued;
        let answer = Mutex::new(CollectedAnswer::Nothing);
        // An order counts from the arrival: a hit that comes later must not be there earlier.
        let place = self.orders.next();
        responder.intercept_with(Arc::new(CacheInserter { model: self.clone(), miss, answer, place }));
        queued
    }
}

/// Has the answer to a request kept as it leaves, before anybody sees it.
pub(super) struct CacheInserter {
    model: Arc<Model>,
    miss: Miss,
    answer: Mutex<CollectedAnswer>,
    /// Where the answer goes then, if not to the client at once.
    place: Option<OrderedInterceptor>,
}

/// What has been answered so far.
enum CollectedAnswer {
    Nothing,
    One(Response),
    /// Errors, or more than one response: what a cache could not give back.
    Other,
}

impl CacheInserter {
    /// Offers the answer to the cache, now that the request has ended well. Gives how long the cache took in all, unless
    /// the request does not count as a miss.
    fn keep(&self, answer: CollectedAnswer) -> Option<Duration> {
        let Miss { key, lookup } = &self.miss;
        let looked_up = lookup.ended - lookup.began;
        let response = match answer {
            // Without an output it is no answer that anybody would want again (S-W33).
            CollectedAnswer::One(response) if !response.outputs.is_empty() => response,
            CollectedAnswer::Nothing | CollectedAnswer::One(_) | CollectedAnswer::Other => {
                return Some(looked_up);
            }
        };
        let began = now();
        match self.model.cached.as_ref()?.store(key, &response) {
            Ok(()) => {}
            // A twin of the request was faster. As Triton: neither hit nor miss.
            Err(error) if error.code == ErrorCode::AlreadyExists => return None,
            Err(error) => log::error!("Failed to insert key [{key}] into response cache: {error}"),
        }
        Some(looked_up + (now() - began))
    }
}

impl ResponseInterceptor for CacheInserter {
    fn intercept(&self, in_flight: InFlightResponse) {
        let mut answer = self.answer.lock();
        *answer = match (std::mem::replace(&mut *answer, CollectedAnswer::Other), in_flight.result()) {
            (answer, None) => answer,
            // Shares the tensors.
            (CollectedAnswer::Nothing, Some(Ok(response))) => CollectedAnswer::One(response.clone()),
            _ => CollectedAnswer::Other,
        };
        let ended_well = in_flight.is_last() && !matches!(in_flight.result(), Some(Err(_)));
        let complete = ended_well.then(|| std::mem::replace(&mut *answer, CollectedAnswer::Other));
        drop(answer);
        if let Some(took) = complete.and_then(|answer| self.keep(answer)) {
            self.model.record.cache_miss(took);
        }
        match &self.place {
            Some(place) => place.intercept(in_flight),
            None => in_flight.deliver(),
        }
    }
}
