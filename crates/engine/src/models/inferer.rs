//! Sends the requests of backends to the models of the repository.
use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use arc_swap::ArcSwap;
use inference::{Inferer, ModelCommands, Request, ResponseStream};
use vocabulary::Error;

use super::table::ModelTable;

/// Looks models up in the latest table. Does not keep the table alive, because the table's models may own the inferer.
pub(super) struct TableInferer {
    table: Weak<ArcSwap<ModelTable>>,
    /// Set once the engine exists.
    model_loader: OnceLock<Arc<dyn ModelCommands>>,
}

impl TableInferer {
    pub(super) fn new(table: &Arc<ArcSwap<ModelTable>>) -> Self {
        Self { table: Arc::downgrade(table), model_loader: OnceLock::new() }
    }

    /// Lets backends load models. Must be called once.
    pub(super) fn set_model_loader(&self, model_loader: Arc<dyn ModelCommands>) {
        let set = self.model_loader.set(model_loader);
        debug_assert!(set.is_ok(), "an engine has one loader of models");
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
        let loaded = self.table()?.load().serving(model, version)?;
        loaded.model().infer(request)
    }

    fn is_decoupled(&self, model: &str, version: Option<i64>) -> Result<bool, Error> {
        Ok(self.table()?.load().serving(model, version)?.model().config().decoupled)
    }

    fn is_ready(&self, model: &str, version: Option<i64>) -> bool {
        let loaded = self.table().and_then(|table| table.load().serving(model, version));
        loaded.is_ok_and(|loaded| loaded.model().ready_here())
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
