//! Models as requests ask for them.
use std::sync::Arc;

use vocabulary::Error;

use crate::{
    model::Model,
    models::{Repository, loaded_version::LoadedVersion},
    on_demand::OnDemandModels,
};

/// The models of an engine as requests ask for them. If models are loaded on demand (`--model-memory-budget`), a model that
/// is not in memory is loaded.
#[derive(Clone, Copy)]
pub struct ModelDemands<'e> {
    repository: &'e Repository,
    on_demand: Option<&'e OnDemandModels>,
    /// The repositories could not be read.
    failed_to_start: bool,
}

impl<'e> ModelDemands<'e> {
    pub(crate) fn new(
        repository: &'e Repository,
        on_demand: Option<&'e OnDemandModels>,
        failed_to_start: bool,
    ) -> Self {
        Self { repository, on_demand: on_demand.filter(|_| !failed_to_start), failed_to_start }
    }

    /// The requested version of a model, or the largest. Waits for the load of a model that is not in memory.
    ///
    /// # Errors
    /// Those of [`Engine::model`](crate::Engine::model). UNAVAILABLE for a model that does not fit, or did not come in time.
    /// RESOURCE_EXHAUSTED if too many requests wait. The error of a load that has failed.
    pub async fn model(self, name: &str, version: Option<i64>) -> Result<Arc<Model>, Error> {
        match (self.in_memory(name, version), self.on_demand) {
            (Err(error), Some(on_demand)) => Box::pin(on_demand.model(name, version, error)).await,
            (looked_up, _) => looked_up,
        }
    }

    /// Whether that version, or any version, is ready, also as its backend reports it. A thread that may block asks the
    /// backend. A model that a request would load is ready. An unknown model is not; it is not an error.
    pub async fn ready(self, name: &str, version: Option<i64>) -> bool {
        match self.look_up(name, version) {
            Ok(loaded) => loaded.work().ready().await,
            Err(_) => self.would_load(name),
        }
    }

    /// As [`ready`](Self::ready), but asks on this thread. Blocks as long as a backend does.
    pub fn ready_here(self, name: &str, version: Option<i64>) -> bool {
        match self.in_memory(name, version) {
            Ok(model) => model.ready_here(),
            Err(_) => self.would_load(name),
        }
    }

    /// Whether a request would load the model, or it is in memory. False if models are not loaded on demand.
    pub fn would_load(self, name: &str) -> bool {
        self.on_demand.is_some_and(|on_demand| on_demand.takes_requests(name))
    }

    /// Whether models are loaded when requests come for them.
    pub fn load_models(self) -> bool {
        self.on_demand.is_some()
    }

    /// Whether a request for the model must wait for its load.
    pub fn must_wait(self, name: &str, version: Option<i64>) -> bool {
        self.on_demand.is_some() && self.in_memory(name, version).is_err()
    }

    /// As [`Engine::model`](crate::Engine::model).
    pub(crate) fn in_memory(self, name: &str, version: Option<i64>) -> Result<Arc<Model>, Error> {
        self.look_up(name, version).map(|loaded| loaded.model().clone())
    }

    fn look_up(self, name: &str, version: Option<i64>) -> Result<Arc<LoadedVersion>, Error> {
        if self.failed_to_start {
            return Err(Error::unavailable("Server not ready"));
        }
        self.repository.table().model(name, version)
    }
}
