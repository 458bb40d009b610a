//! An instance of a library's model as the engine executes it.
use std::sync::Arc;

use inference::{
    Error, FailureReason,
    backend::{BackendInstance, Batch},
};
use smallvec::SmallVec;

use super::{Backend, ModelInstance, Request};

/// An initialized instance; finalized when dropped. The drop waits until the library has released all that it got.
#[derive(Debug)]
pub(super) struct Running {
    instance: Arc<ModelInstance>,
    backend: Arc<Backend>,
}

impl Running {
    /// Lets the library initialize the instance. Afterwards the instance is ready.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn start(instance: ModelInstance, backend: Arc<Backend>) -> Result<Self, Error> {
        let running = Self { instance: Arc::new(instance), backend };
        running.backend.entries().instance_initialize(&running.instance)?;
        running.instance.model().instance_registry().enter(&running.instance);
        Ok(running)
    }
}

impl BackendInstance for Running {
    /// The library answers and releases the requests, during the call or later. On an error Rust still owns the
    /// requests.
    fn execute(&mut self, batch: Batch) {
        let instance = &*self.instance;
        let first = batch.executions.first();
        instance.report_through(first.and_then(|execution| execution.responder.batch_reporter()));
        let requests: SmallVec<[*mut Request; 8]> = batch
            .executions
            .into_iter()
            .map(|execution| Box::into_raw(Box::new(Request::new(execution, instance))))
            .collect();
        // The library may overwrite the array.
        let mut lent = requests.clone();
        if let Err(error) = self.backend.entries().execute(instance, &mut lent) {
            let error = error.because(FailureReason::Backend);
            for request in requests {
                // SAFETY: made above; a library that returns an error keeps none of the requests.
                unsafe { Box::from_raw(request) }.fail(error.clone());
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.instance.model().instance_registry().leave(&self.instance);
        self.instance.wait_for_releases();
        if let Err(error) = self.backend.entries().instance_finalize(&self.instance) {
            log::error!("failed finalizing model instance: {error}");
        }
    }
}
