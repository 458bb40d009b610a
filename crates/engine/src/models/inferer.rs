//! Sends the requests of backends to the models of the repository.
use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use arc_swap::ArcSwap;
use inference::{Inferer, ModelCommands, Request, ResponseStream};
use vocabulary::Error;

use super::table::ModelTable;

/// Models that are not in memory, and are loaded when requests come for them.
pub(crate) trait AbsentModels: Send + Sync {
    /// Whether a request for this model would wait for its load.
    fn come(&self, model: &str) -> bool;

    /// Whether such a model may have any number of responses, as far as is known.
    fn are_decoupled(&self, model: &str) -> bool;

    /// Sends a request to such a model when it has been loaded. Does not block. What fails comes on the stream.
    fn infer(&self, model: &str, version: Option<i64>, request: Request) -> ResponseStream;
}

/// Looks models up in the latest table. Does not keep the table alive, because the table's models may own the inferer.
pub(super) struct TableInferer {
    table: Weak<ArcSwap<ModelTable>>,
    /// Set once the engine exists.
    model_loader: OnceLock<Arc<dyn ModelCommands>>,
    /// Set if models are loaded on demand.
    absent_models: OnceLock<Arc<dyn AbsentModels>>,
}

impl TableInferer {
    pub(super) fn new(table: &Arc<ArcSwap<ModelTable>>) -> Self {
        Self { table: Arc::downgrade(table), model_loader: OnceLock::new(), absent_models: OnceLock::new() }
    }

    /// Lets backends load models. Must be called once.
    pub(super) fn set_model_loader(&self, model_loader: Arc<dyn ModelCommands>) {
        let set = self.model_loader.set(model_loader);
        debug_assert!(set.is_ok(), "an engine has one loader of models");
    }

    /// Lets requests reach models that are not in memory. Must be called at most once.
    pub(super) fn set_absent_models(&self, absent: Arc<dyn AbsentModels>) {
        let set = self.absent_models.set(absent);
        debug_assert!(set.is_ok(), "an engine has one memory budget");
    }

    /// Models that are not in memory, if requests for this one would wait for its load.
    fn absent(&self, model: &str) -> Option<&Arc<dyn AbsentModels>> {
        self.absent_models.get().filter(|absent| absent.come(model))
    }

    fn table(&self) -> Result<Arc<ArcSwap<ModelTable>>, Error> {
        self.table.upgrade().ok_or_else(|| Error::unavailable("the server has ended"))
    }
}

impl Inferer for TableInferer {
    fn infer(
        &self,
        model: &str,
        version: Option<i64>,
        mut request: Request,
    ) -> Result<ResponseStream, Error> {
        request.model_version = version;
        let looked_up = self.table()?.load().serving(model, version);
        match looked_up {
            Ok(loaded) => loaded.model().infer(request),
            Err(error) => match self.absent(model) {
                Some(absent) => Ok(absent.infer(model, version, request)),
                None => Err(error),
            },
        }
    }

    fn is_decoupled(&self, model: &str, version: Option<i64>) -> Result<bool, Error> {
        let looked_up = self.table()?.load().serving(model, version);
        match looked_up {
            Ok(loaded) => Ok(loaded.model().config().decoupled),
            Err(error) => match self.absent(model) {
                Some(absent) => Ok(absent.are_decoupled(model)),
                None => Err(error),
            },
        }
    }

    fn is_ready(&self, model: &str, version: Option<i64>) -> bool {
        match self.table().and_then(|table| table.load().serving(model, version)) {
            Ok(loaded) => loaded.model().ready_here(),
            Err(_) => self.absent(model).is_some(),
        }
    }

    fn model_loader(&self) -> Option<Arc<dyn ModelCommands>> {
        self.model_loader.get().cloned()
    }
}

impl fmt::Debug for TableInferer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableInferer").finish_non_exhaustive()
    }
}
