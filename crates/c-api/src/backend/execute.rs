//! An instance of a library's model as the engine executes it.
use std::{path::Path, ptr, sync::Arc};

use inference::backend::{BackendInstance, Batch};
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason};

use super::{
    ModelInstance, Request,
    entry_point::{EntryPoint, call},
    instance_registry::InstanceRegistry,
};
use crate::{
    plugin::Library,
    types::error::{CError, consume},
};

/// The functions of a library for an instance. Only `execute` is required. They exist as long as the library is loaded:
/// an instance keeps its model, and a model its backend, which has the library.
#[derive(Debug, Clone, Copy)]
pub(super) struct InstanceFunctions {
    initialize: Option<EntryPoint<ModelInstance>>,
    finalize: Option<EntryPoint<ModelInstance>>,
    ready: Option<EntryPoint<ModelInstance>>,
    execute: unsafe extern "C-unwind" fn(*mut ModelInstance, *mut *mut Request, u32) -> *mut CError,
}

impl InstanceFunctions {
    /// # Errors
    /// NOT_FOUND if the library is no backend.
    pub(super) fn of(library: &Library, path: &Path) -> Result<Self, Error> {
        // SAFETY: the types are those of the header for these names.
        unsafe {
            Ok(Self {
                initialize: library.function(c"TRITONBACKEND_ModelInstanceInitialize"),
                finalize: library.function(c"TRITONBACKEND_ModelInstanceFinalize"),
                ready: library.function(c"TRITONBACKEND_ModelInstanceReady"),
                execute: library.function(c"TRITONBACKEND_ModelInstanceExecute").ok_or_else(|| {
                    Error::not_found(format!(
                        "unable to find required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in library {}",
                        path.display()
                    ))
                })?,
            })
        }
    }

    /// Whether the library defines the function that tells whether an instance is ready.
    pub(super) fn report_readiness(&self) -> bool {
        self.ready.is_some()
    }

    /// Asks the library whether an instance is ready. If the library does not define that function, the instance is
    /// ready.
    pub(super) fn ready(&self, instance: &ModelInstance) -> Result<(), Error> {
        call(self.ready, instance)
    }

    /// Hands requests to the library. On success the library owns them. On an error the caller still owns them.
    fn execute(&self, instance: &ModelInstance, requests: &mut [*mut Request]) -> Result<(), Error> {
        // A batch has at most as many requests as rows, which are counted in 32 bits.
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        // SAFETY: the instance lives during the call, and each request lives until it is released; this function owns
        // the array.
        unsafe { consume((self.execute)(ptr::from_ref(instance).cast_mut(), requests.as_mut_ptr(), count)) }
    }
}

/// An initialized instance; finalized when dropped. The drop waits until the library has released all that it got.
#[derive(Debug)]
pub(super) struct Running {
    instance: Arc<ModelInstance>,
    functions: InstanceFunctions,
    registry: Arc<InstanceRegistry>,
}

impl Running {
    /// Lets the library initialize the instance. Afterwards the instance is ready.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn start(
        instance: ModelInstance,
        functions: InstanceFunctions,
        registry: &Arc<InstanceRegistry>,
    ) -> Result<Self, Error> {
        let running = Self { instance: Arc::new(instance), functions, registry: registry.clone() };
        call(functions.initialize, &*running.instance)?;
        registry.enter(&running.instance);
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
            .map(|execution| Box::into_raw(Request::new(execution, instance)))
            .collect();
        // The library may overwrite the array.
        let mut lent = requests.clone();
        if let Err(error) = self.functions.execute(instance, &mut lent) {
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
        self.registry.leave(&self.instance);
        self.instance.wait_for_releases();
        if let Err(error) = call(self.functions.finalize, &*self.instance) {
            log::error!("failed finalizing model instance: {error}");
        }
    }
}
