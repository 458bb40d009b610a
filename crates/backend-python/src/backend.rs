//! The backend, and which models it runs.
use std::sync::Arc;

use inference::{
    Error,
    backend::{Backend, BackendModel, KnownNames, ModelSource},
    metric_registry::MetricRegistry,
};

use crate::{model::PythonModel, model_context::ModelContext, settings::KNOWN_NAMES, spawner::Spawner};

/// Runs models that are written in Python.
#[derive(Debug)]
pub struct PythonBackend {
    spawner: Arc<Spawner>,
    metrics: Arc<MetricRegistry>,
}

impl PythonBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = "python";

    /// A backend that has started nothing. Models register their metrics in `metrics`.
    pub fn new(metrics: Arc<MetricRegistry>) -> Self {
        Self { spawner: Arc::new(Spawner::new()), metrics }
    }
}

impl Backend for PythonBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn known_names(&self) -> Option<KnownNames> {
        Some(KNOWN_NAMES)
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let context = ModelContext::of(source, None, (self.spawner.clone(), self.metrics.clone()))?;
        Ok(Box::new(PythonModel::new(Arc::new(context))))
    }
}
