//! The door for custom batching strategies: which requests may share a batch, beyond shapes and sizes.
//!
//! The five functions `TRITONBACKEND_ModelBatch*` of `tritonbackend.h` are its model: a strategy lives as long as its
//! model version, a batch in the making as long as requests may still join it. Only the dynamic batcher asks.
use std::path::Path;

use crate::{Error, Request, backend::ModelSource};

/// Opens the libraries of batching strategies.
pub trait StrategyOpener: Send + Sync {
    /// The strategy of a model version whose library lies at that path; `None` if there is nothing in it that batches.
    /// May block: it runs on a thread that loads models. `config` is complete; no instance has been built yet.
    ///
    /// # Errors
    /// INVALID_ARG for a library that lacks some of the functions; whatever the strategy says if it does not start.
    fn open(
        &self,
        library: &Path,
        source: &ModelSource,
        config: &proto::ModelConfig,
    ) -> Result<Option<Box<dyn BatchingStrategy>>, Error>;
}

/// The batching strategy of a model version. Dropped when the version has run its last request, before its instances
/// are (S-W16).
pub trait BatchingStrategy: Send + Sync {
    /// A batch is begun. The one before it is gone by then.
    fn begin(&self) -> Box<dyn PendingBatch>;
}

/// A batch in the making. Dropped before it runs, and when the queue has changed so that another one must be begun.
///
/// The queue of its model is locked while a batch is begun, asked or dropped. So a strategy must be fast, and must neither
/// wait for requests of its model nor send any: that would be a deadlock. Any thread may ask, one at a time. Each piece of
/// news (a request that comes, ends or is cancelled, an instance that is idle) costs at most one batch that is begun, and
/// of each batch no more questions than it may have requests, and one. A panic ends the batch and nothing else.
pub trait PendingBatch: Send {
    /// Whether the request may join those included before it. It has been checked, and everything else speaks for it. A
    /// refusal ends the batch; a request that is refused as the first runs alone (S-W14).
    fn include(&mut self, request: &Request) -> bool;
}
