//! Batching strategies in shared libraries: the five functions `TRITONBACKEND_ModelBatch*`.
use std::{ffi::c_void, path::Path, ptr, sync::Arc};

use inference::{
    backend::ModelSource,
    batching::{BatchCandidate, BatchingStrategy, StrategyOpener},
};
use vocabulary::Error;

use crate::{
    backend::{Model, Request, ServerHandle},
    plugin::Library,
    types::error::{CError, consume},
};

type BatcherInitialize = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut Model) -> *mut CError;
type BatcherFinalize = unsafe extern "C-unwind" fn(*mut c_void) -> *mut CError;
type BatchInitialize = unsafe extern "C-unwind" fn(*const c_void, *mut *mut c_void) -> *mut CError;
type BatchInclude = unsafe extern "C-unwind" fn(*mut Request, *mut c_void, *mut bool) -> *mut CError;
type BatchFinalize = unsafe extern "C-unwind" fn(*mut c_void) -> *mut CError;

/// Opens libraries of batching strategies.
#[derive(Debug)]
pub struct BatchingLibraries {
    server: ServerHandle,
}

impl BatchingLibraries {
    /// `server` is the server handle that strategies get.
    pub fn new(server: ServerHandle) -> Self {
        Self { server }
    }
}

impl StrategyOpener for BatchingLibraries {
    fn open(
        &self,
        library: &Path,
        source: &ModelSource,
        config: &proto::ModelConfig,
    ) -> Result<Option<Box<dyn BatchingStrategy>>, Error> {
        let opened = Library::open(library)?;
        // SAFETY: the types are those of the header for these names.
        let functions = unsafe {
            (
                opened.function::<BatcherInitialize>(c"TRITONBACKEND_ModelBatcherInitialize"),
                opened.function::<BatcherFinalize>(c"TRITONBACKEND_ModelBatcherFinalize"),
                opened.function::<BatchInitialize>(c"TRITONBACKEND_ModelBatchInitialize"),
                opened.function::<BatchInclude>(c"TRITONBACKEND_ModelBatchIncludeRequest"),
                opened.function::<BatchFinalize>(c"TRITONBACKEND_ModelBatchFinalize"),
            )
        };
        let (Some(start), Some(finish), Some(initialize), Some(include), Some(finalize)) = functions else {
            if matches!(functions, (None, None, None, None, None)) {
                return Ok(None);
            }
            return Err(Error::invalid(format!(
                "{} does not define all required custom batching functions for model {}",
                library.display(),
                source.name
            )));
        };
        let model = Arc::new(Model::shown(source, config, self.server));
        let mut batcher = ptr::null_mut();
        // SAFETY: a place of this function, and a model that lives as long as the batcher.
        unsafe { consume(start(&raw mut batcher, Arc::as_ptr(&model).cast_mut()))? };
        let functions = Functions { finish, initialize, include, finalize };
        Ok(Some(Box::new(PluginStrategy(Arc::new(Batcher { batcher, model, functions, _library: opened })))))
    }
}

#[derive(Debug, Clone, Copy)]
struct Functions {
    finish: BatcherFinalize,
    initialize: BatchInitialize,
    include: BatchInclude,
    finalize: BatchFinalize,
}

/// The batcher that a library has made for one model; finalized when dropped.
#[derive(Debug)]
struct Batcher {
    batcher: *mut c_void,
    model: Arc<Model>,
    functions: Functions,
    _library: Library,
}

// SAFETY: only one thread at a time asks the library's object, as the trait promises. The header allows any thread.
unsafe impl Send for Batcher {}
// SAFETY: the same.
unsafe impl Sync for Batcher {}

impl Batcher {
    fn log(&self, function: &str, result: Result<(), Error>) {
        if let Err(error) = result {
            let model = self.model.name();
            log::error!("Custom batching {function} function failed for model {model}: {error}");
        }
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        // SAFETY: initialized, and finalized once.
        let result = unsafe { consume((self.functions.finish)(self.batcher)) };
        if let Err(error) = result {
            log::error!("Custom batcher finalization failed for model {}: {error}", self.model.name());
        }
    }
}

struct PluginStrategy(Arc<Batcher>);

impl BatchingStrategy for PluginStrategy {
    fn begin(&self) -> Box<dyn BatchCandidate> {
        let batcher = self.0.clone();
        let mut batch = ptr::null_mut();
        // SAFETY: the batcher lives; a place of this function.
        let result =
            unsafe { consume((batcher.functions.initialize)(batcher.batcher.cast_const(), &raw mut batch)) };
        batcher.log("initialization", result);
        Box::new(Pending { batch, batcher })
    }
}

/// A batch under construction, as the library represents it; null if the library stores nothing.
struct Pending {
    batch: *mut c_void,
    batcher: Arc<Batcher>,
}

// SAFETY: only one thread at a time asks it, as the trait promises.
unsafe impl Send for Pending {}

impl BatchCandidate for Pending {
    fn include(&mut self, request: &inference::Request) -> bool {
        let shown = Request::shown(request.share(), &self.batcher.model);
        let mut include = false;
        // SAFETY: the request and the place live during the call.
        let result = unsafe {
            let shown = ptr::from_ref(&*shown).cast_mut();
            consume((self.batcher.functions.include)(shown, self.batch, &raw mut include))
        };
        self.batcher.log("include", result);
        include
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // As Triton: a batch that the library has not made is not finalized.
        if !self.batch.is_null() {
            // SAFETY: made by the library, and finalized once.
            let result = unsafe { consume((self.batcher.functions.finalize)(self.batch)) };
            self.batcher.log("finalization", result);
        }
    }
}
