//! A model of a library as the engine uses it.
use std::{num::NonZeroU32, sync::Arc};

use config::ModelConfig;
use inference::backend::{
    BackendModel, BuiltInstance, InstanceSpec, MemoryUsage, ModelSource, ReleaseFuture,
};
use vocabulary::Error;

use super::{
    Backend, Model, ModelInstance,
    execute::{InstanceFunctions, Running},
    instance_registry::InstanceRegistry,
};

/// A model that its library has initialized.
#[derive(Debug)]
pub(super) struct OpenedModel {
    model: Arc<Model>,
    backend: Arc<Backend>,
    functions: InstanceFunctions,
    instance_registry: Arc<InstanceRegistry>,
}

impl OpenedModel {
    /// Lets the library initialize the model.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn open(
        backend: &Arc<Backend>,
        functions: InstanceFunctions,
        source: &ModelSource,
    ) -> Result<Self, Error> {
        let model = Arc::new(Model::opened(backend, source));
        model.initialize()?;
        Ok(Self { model, backend: backend.clone(), functions, instance_registry: Arc::default() })
    }
}

impl BackendModel for OpenedModel {
    fn reads_device_memory(&self) -> bool {
        true
    }

    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        if let Some(completed) = self.model.take_completed() {
            *config = completed;
        }
        Ok(None)
    }

    fn configured(&self, config: &proto::ModelConfig) {
        self.model.configured(config);
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.model.memory().total()
    }

    fn is_outdated(&self) -> bool {
        self.backend.is_outdated()
    }

    fn reports_readiness(&self) -> bool {
        self.functions.report_readiness()
    }

    fn ready(&self) -> Result<(), Error> {
        self.instance_registry.ask(|instance| self.functions.ready(instance))
    }

    fn released(&self) -> ReleaseFuture {
        Box::pin(self.model.in_use_counts().released())
    }

    fn abandon_releases(&self) {
        self.model.in_use_counts().abandon();
    }

    fn builds_in_parallel(&self) -> bool {
        self.backend.builds_in_parallel()
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        self.model.validated(config);
        let instance = ModelInstance::new(&self.model, config, spec);
        let running = Running::start(instance, self.functions, &self.instance_registry)?;
        // The interface promises that an instance is not executed twice at a time. It promises nothing about threads.
        Ok(if self.model.wants_own_threads() {
            BuiltInstance::ThreadBound(Box::new(running))
        } else {
            BuiltInstance::Movable(Box::new(running))
        })
    }
}
