//! The functions that a backend's library defines.
use std::path::Path;

use inference::Error;

use super::{Backend, Model, ModelInstance, Request, attributes::Attributes};
use crate::{
    plugin::Library,
    types::error::{CError, consume},
};

/// A function of a plug-in that takes one object.
type About<T> = unsafe extern "C-unwind" fn(*mut T) -> *mut CError;
type Execute = unsafe extern "C-unwind" fn(*mut ModelInstance, *mut *mut Request, u32) -> *mut CError;
type GetAttribute = unsafe extern "C-unwind" fn(*mut Backend, *const Attributes) -> *mut CError;

/// The entry points of one library; only `execute` is required.
#[derive(Debug)]
pub(super) struct Entries {
    initialize: Option<About<Backend>>,
    finalize: Option<About<Backend>>,
    get_attribute: Option<GetAttribute>,
    model_initialize: Option<About<Model>>,
    model_finalize: Option<About<Model>>,
    instance_initialize: Option<About<ModelInstance>>,
    instance_finalize: Option<About<ModelInstance>>,
    instance_ready: Option<About<ModelInstance>>,
    execute: Execute,
}

impl Entries {
    /// # Errors
    /// NOT_FOUND if the library is no backend.
    pub(super) fn of(library: &Library, path: &Path) -> Result<Self, Error> {
        // SAFETY: the types are those of the header for these names.
        unsafe {
            Ok(Self {
                initialize: library.function(c"TRITONBACKEND_Initialize"),
                finalize: library.function(c"TRITONBACKEND_Finalize"),
                get_attribute: library.function(c"TRITONBACKEND_GetBackendAttribute"),
                model_initialize: library.function(c"TRITONBACKEND_ModelInitialize"),
                model_finalize: library.function(c"TRITONBACKEND_ModelFinalize"),
                instance_initialize: library.function(c"TRITONBACKEND_ModelInstanceInitialize"),
                instance_finalize: library.function(c"TRITONBACKEND_ModelInstanceFinalize"),
                instance_ready: library.function(c"TRITONBACKEND_ModelInstanceReady"),
                execute: library.function(c"TRITONBACKEND_ModelInstanceExecute").ok_or_else(|| {
                    Error::not_found(format!(
                        "unable to find required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in library {}",
                        path.display()
                    ))
                })?,
            })
        }
    }

    pub(super) fn initialize(&self, backend: &Backend) -> Result<(), Error> {
        call(self.initialize, backend)
    }

    pub(super) fn finalize(&self, backend: &Backend) -> Result<(), Error> {
        call(self.finalize, backend)
    }

    pub(super) fn model_initialize(&self, model: &Model) -> Result<(), Error> {
        call(self.model_initialize, model)
    }

    pub(super) fn model_finalize(&self, model: &Model) -> Result<(), Error> {
        call(self.model_finalize, model)
    }

    pub(super) fn instance_initialize(&self, instance: &ModelInstance) -> Result<(), Error> {
        call(self.instance_initialize, instance)
    }

    pub(super) fn instance_finalize(&self, instance: &ModelInstance) -> Result<(), Error> {
        call(self.instance_finalize, instance)
    }

    /// Whether the library defines the function that tells whether an instance is ready.
    pub(super) fn reports_readiness(&self) -> bool {
        self.instance_ready.is_some()
    }

    /// Asks the library whether an instance is ready. If the library does not define that function, the instance is
    /// ready.
    pub(super) fn instance_ready(&self, instance: &ModelInstance) -> Result<(), Error> {
        call(self.instance_ready, instance)
    }

    pub(super) fn get_attribute(&self, backend: &Backend, attributes: &Attributes) -> Result<(), Error> {
        let Some(function) = self.get_attribute else { return Ok(()) };
        // SAFETY: both live during the call; the library has received `backend` when it was initialized.
        unsafe { consume(function(std::ptr::from_ref(backend).cast_mut(), attributes)) }
    }

    /// Hands requests to the library. On success the library owns them. On an error the caller still owns them.
    pub(super) fn execute(
        &self,
        instance: &ModelInstance,
        requests: &mut [*mut Request],
    ) -> Result<(), Error> {
        // A batch has at most as many requests as rows, which are counted in 32 bits.
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        // SAFETY: the instance lives during the call, and each request lives until it is released; this function owns
        // the array.
        unsafe {
            consume((self.execute)(std::ptr::from_ref(instance).cast_mut(), requests.as_mut_ptr(), count))
        }
    }
}

fn call<T>(function: Option<About<T>>, object: &T) -> Result<(), Error> {
    let Some(function) = function else { return Ok(()) };
    // SAFETY: the object lives during the call; the library uses it as a handle, and Rust uses it through shared
    // references.
    unsafe { consume(function(std::ptr::from_ref(object).cast_mut())) }
}
