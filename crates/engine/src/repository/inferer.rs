//! Sends the requests of backends to the models of the repository.
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use inference::{Error, Inferer, Request, ResponseStream};

use super::table::ModelTable;

/// Looks models up in the latest table. Does not keep the table alive, because the table's models may own the inferer.
#[derive(Debug)]
pub(super) struct TableInferer {
    table: Weak<ArcSwap<ModelTable>>,
}

impl TableInferer {
    pub(super) fn new(table: &Arc<ArcSwap<ModelTable>>) -> Self {
        Self { table: Arc::downgrade(table) }
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
        let table = self.table.upgrade().ok_or_else(|| Error::unavailable("the server has ended"))?;
        let model = table.load().serving(model, version)?;
        model.infer(request)
    }
}
