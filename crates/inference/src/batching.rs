//! The extension point for custom batching strategies: which requests may share a batch, beyond shapes and sizes.
//!
//! The interface follows the five functions `TRITONBACKEND_ModelBatch*` of `tritonbackend.h`. A strategy lives as
//! long as its model version. A pending batch lives as long as requests may join it. Only the dynamic batcher calls a
//! strategy.
use std::path::Path;

use vocabulary::Error;

use crate::{Request, backend::ModelSource};

/// Opens the libraries of batching strategies.
pub trait StrategyOpener: Send + Sync {
    /// Opens the strategy of a model version from the library at that path; `None` if the library has no batching
    /// functions. May block: a thread for loading models calls it. `config` is complete. No instance exists yet.
    ///
    /// # Errors
    /// INVALID_ARG for a library that lacks some of the functions; the strategy's own error if it does not start.
    fn open(
        &self,
        library: &Path,
        source: &ModelSource,
        config: &proto::ModelConfig,
    ) -> Result<Option<Box<dyn BatchingStrategy>>, Error>;
}

/// The batching strategy of a model version. The server drops it after the last request of the version, before the
/// instances (S-W16).
pub trait BatchingStrategy: Send + Sync {
    /// Begins a batch. The previous batch has been dropped before.
    fn begin(&self) -> Box<dyn BatchCandidate>;
}

/// A batch under construction. The batcher drops it before it runs. The batcher also drops it when the queue has
/// changed, and then begins another batch.
///
/// The batcher calls these methods while the queue of the model is locked. A strategy should therefore be fast: while it
/// computes, the model starts nothing. It must not wait for requests of its model: that would deadlock. Only threads of
/// the model call, one at a time. Each event (a request arrives, ends or is cancelled, or an instance is idle) begins at
/// most one batch. For each batch there are at most as many calls as it may have requests, and one more. A panic ends
/// the batch and has no other effect.
pub trait BatchCandidate: Send {
    /// Whether the request may join the requests that the batch already includes. The request has passed validation
    /// and all other rules of batching. A refusal ends the batch. If the first request is refused, it runs alone
    /// (S-W14).
    fn include(&mut self, request: &Request) -> bool;
}
