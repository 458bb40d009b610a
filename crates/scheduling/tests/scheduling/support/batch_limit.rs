//! A limit on batches beyond sizes and shapes, in two forms: as a plain function, and as a filter that the batcher
//! calls. The filter panics if the batcher makes a call that it must not make.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use scheduling::BatchFilter;

use crate::support::driver::RequestId;

/// The requests that a batch may contain.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Limit {
    /// Any requests.
    #[default]
    None,
    /// One request.
    Alone,
    /// Requests whose volumes add up to at most this number.
    Volume(u32),
}

/// A limit, and the volumes of requests. Clones share the volumes.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchLimit {
    limit: Limit,
    volumes: Arc<Mutex<BTreeMap<RequestId, u32>>>,
}

impl BatchLimit {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Sets the volume of a request. Other requests have a volume of 1.
    pub(crate) fn weigh(&self, request: RequestId, volume: u32) {
        self.volumes().insert(request, volume);
    }

    /// Whether `next` may join `batch`. If `batch` is empty: whether other requests may join `next`.
    pub(crate) fn admits(&self, batch: &[RequestId], next: RequestId) -> bool {
        let volumes = self.volumes();
        let volume = |request: &RequestId| volumes.get(request).copied().unwrap_or(1);
        match self.limit {
            Limit::None => true,
            Limit::Alone => batch.is_empty(),
            Limit::Volume(most) => batch.iter().chain([&next]).map(volume).sum::<u32>() <= most,
        }
    }

    /// The limit as a filter, if there is a limit.
    pub(crate) fn filter(&self) -> Option<Box<dyn BatchFilter<RequestId>>> {
        match self.limit {
            Limit::None => None,
            Limit::Alone | Limit::Volume(_) => {
                Some(Box::new(Filter { batch_limit: self.clone(), requests: Vec::new(), ended: false }))
            }
        }
    }

    fn volumes(&self) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, u32>> {
        self.volumes.lock().expect("no test goes on after a panic")
    }
}

struct Filter {
    batch_limit: BatchLimit,
    /// The requests that the batcher has asked about for the batch under construction.
    requests: Vec<RequestId>,
    ended: bool,
}

impl BatchFilter<RequestId> for Filter {
    fn admit(&mut self, &request: &RequestId) -> bool {
        assert!(!self.ended, "{request} is asked about after another one was refused");
        assert!(!self.requests.contains(&request), "{request} is asked about again");
        self.ended = !self.batch_limit.admits(&self.requests, request);
        self.requests.push(request);
        !self.ended
    }

    fn reset(&mut self) {
        self.requests.clear();
        self.ended = false;
    }
}
