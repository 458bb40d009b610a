//! The storing of an answer.
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::BoxFuture;
use host::now;
use inference::{
    Timestamp,
    cache::{CachedAnswer, StorageRules},
};
use vocabulary::{Error, ErrorCode};

use super::ModelCache;
use crate::{account::RequestCounters, response_cache::flights::FlightKey};

/// What remains of an insertion that the cache could not do at once.
pub(super) type RestOfInsertion = BoxFuture<'static, ()>;

/// An answer that is being stored.
pub(super) struct Insertion {
    pub(super) cache: Arc<ModelCache>,
    pub(super) key: FlightKey,
    pub(super) record: Arc<RequestCounters>,
    /// How long the look-up took, if there was one.
    pub(super) looked_up: Option<Duration>,
    pub(super) began: Timestamp,
    /// The answer takes the place of another one.
    pub(super) replaces: bool,
}

impl Insertion {
    /// Returns the rest of the insertion, if the cache cannot store the answer at once.
    pub(super) fn begin(self, answer: Arc<CachedAnswer>) -> Option<RestOfInsertion> {
        let ModelCache { cache, caching, .. } = &*self.cache;
        let lifetime = caching.time_to_live.map(|time_to_live| time_to_live + caching.stale_time);
        let terms = StorageRules { lifetime, replaces: self.replaces || lifetime.is_some() };
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
            self.cache.server.runtime.spawn(removal);
        }
    }
}
