//! `TRITONBACKEND_Model`: one version of a model that a backend runs.
use std::{
    ffi::{CString, c_char, c_void},
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicPtr,
            Ordering::{Acquire, Release},
        },
    },
};

use config::{ModelConfig, complete};
use inference::{backend::ModelSource, lock::Mutex};
use proto::ModelParameter;
use vocabulary::{Error, Name};

use super::{
    Backend, ServerHandle,
    entry_point::{EntryPoint, call},
    in_use::InUseCounts,
    usage::{MemoryAccount, MemoryUse},
};
use crate::{
    handle::{Handle, borrow, c_path, guard, put, readable},
    plugin::Library,
    types::{
        buffer_attributes::BufferAttributes,
        error::CError,
        message::{Message, give_json},
    },
};

/// `TRITONBACKEND_Model`. When it is dropped, the library finalizes it.
#[derive(Debug)]
pub struct Model {
    source: ModelSource,
    functions: ModelFunctions,
    directory: CString,
    /// `None` for a model that is not executed (custom batching).
    backend: Option<Arc<Backend>>,
    server: ServerHandle,
    /// The configuration as far as it is known.
    config: Mutex<proto::ModelConfig>,
    /// The configuration that the library has completed.
    completed: Mutex<Option<proto::ModelConfig>>,
    typed: OnceLock<Arc<ModelConfig>>,
    /// Names of all outputs, sorted.
    outputs: OnceLock<Box<[Name]>>,
    state: AtomicPtr<c_void>,
    in_use_counts: InUseCounts,
    memory: MemoryAccount,
}

/// The functions of a library for a model. A model that is not executed has none.
#[derive(Debug, Default)]
struct ModelFunctions {
    initialize: Option<EntryPoint<Model>>,
    finalize: Option<EntryPoint<Model>>,
}

impl ModelFunctions {
    fn of(library: &Library) -> Self {
        // SAFETY: the types are those of the header for these names.
        unsafe {
            Self {
                initialize: library.function(c"TRITONBACKEND_ModelInitialize"),
                finalize: library.function(c"TRITONBACKEND_ModelFinalize"),
            }
        }
    }
}

impl Handle for Model {
    const NAME: &'static str = "TRITONBACKEND_Model";
}

impl Model {
    /// A model that its backend has not initialized.
    pub(super) fn opened(backend: &Arc<Backend>, source: &ModelSource) -> Self {
        let model = Self::new(source, &source.declared, backend.server(), Some(backend.clone()));
        model.add_python_settings();
        model
    }

    /// Lets the library initialize the model.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn initialize(&self) -> Result<(), Error> {
        call(self.functions.initialize, self)
    }

    /// A model that is not executed. Another backend may execute it.
    pub(crate) fn shown(source: &ModelSource, config: &proto::ModelConfig, server: ServerHandle) -> Self {
        Self::new(source, config, server, None)
    }

    fn new(
        source: &ModelSource,
        config: &proto::ModelConfig,
        server: ServerHandle,
        backend: Option<Arc<Backend>>,
    ) -> Self {
        let functions = backend.as_ref().map(|backend| ModelFunctions::of(backend.library()));
        Self {
            directory: c_path(&source.model_directory),
            functions: functions.unwrap_or_default(),
            backend,
            server,
            config: Mutex::new(config.clone()),
            completed: Mutex::default(),
            typed: OnceLock::new(),
            outputs: OnceLock::new(),
            state: AtomicPtr::default(),
            in_use_counts: InUseCounts::default(),
            memory: MemoryAccount::of_model(),
            source: source.clone(),
        }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.source.name
    }

    /// Settings of the host policy with that name.
    pub(super) fn host_policy(&self, name: &str) -> serde_json::Value {
        let settings = self.source.host_policies.get(name).cloned().unwrap_or_default();
        serde_json::json!({ name: settings })
    }

    /// The validated configuration; set when instances are built.
    pub(super) fn typed(&self) -> Option<&Arc<ModelConfig>> {
        self.typed.get()
    }

    /// Names of all outputs, sorted.
    pub(super) fn outputs(&self) -> &[Name] {
        self.outputs.get().map_or(&[], |outputs| outputs)
    }

    /// What the library holds of each instance.
    pub(super) fn in_use_counts(&self) -> &InUseCounts {
        &self.in_use_counts
    }

    /// The memory that the model uses; each instance has an account of its own.
    pub(super) fn memory(&self) -> &MemoryAccount {
        &self.memory
    }

    /// Sets the validated configuration, unless it is set.
    pub(super) fn validated(&self, config: &Arc<ModelConfig>) {
        self.typed.get_or_init(|| config.clone());
        self.outputs.get_or_init(|| {
            let mut names: Vec<Name> = config.outputs.iter().map(|output| output.name.clone()).collect();
            names.sort();
            names.into()
        });
    }

    /// Replaces the configuration.
    pub(super) fn configured(&self, config: &proto::ModelConfig) {
        *self.config.lock() = config.clone();
        self.add_python_settings();
    }

    /// Takes the configuration that the library has completed.
    pub(super) fn take_completed(&self) -> Option<proto::ModelConfig> {
        self.completed.lock().take()
    }

    /// Whether each instance wants a thread of its own.
    pub(super) fn wants_own_threads(&self) -> bool {
        self.source.settings.get("own-thread").is_some_and(|value| value == "true")
    }

    fn is_auto_completed(&self) -> bool {
        self.source.settings.get("auto-complete-config").is_none_or(|value| value != "false")
    }

    /// Takes over those parts of the configuration that a library may complete.
    fn complete(&self, completed: proto::ModelConfig) -> Result<(), Error> {
        let config = {
            let mut config = self.config.lock();
            *config = complete(&config, completed)?;
            config.clone()
        };
        *self.completed.lock() = Some(config);
        Ok(())
    }

    /// Adds the settings that a model of a backend in Python gets besides its own configuration.
    fn add_python_settings(&self) {
        let Some(backend) = self.backend.as_ref().filter(|backend| backend.is_run_by_python()) else {
            return;
        };
        let mut config = self.config.lock();
        "model.py".clone_into(&mut config.runtime);
        let environment = backend.directory().join("pb_exec_env_model.py.tar.gz");
        if environment.exists() {
            let string_value = environment.display().to_string();
            let parameter = ModelParameter { string_value };
            config.parameters.entry("EXECUTION_ENV_PATH".to_owned()).or_insert(parameter);
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Err(error) = call(self.functions.finalize, self) {
            log::error!("failed finalizing model: {error}");
        }
    }
}

/// Returns the model's name. It belongs to the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelName(model: *mut Model, name: *mut *const c_char) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(name, readable(&borrow(model)?.source.name)) })
}

/// Returns the version's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelVersion(model: *mut Model, version: *mut u64) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(version, u64::try_from(borrow(model)?.source.version).unwrap_or_default()) })
}

/// Returns the model's directory (artifact type 0, a file system). The path belongs to the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelRepository(
    model: *mut Model,
    artifact_type: *mut u32,
    location: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let model = borrow(model)?;
        put(artifact_type, 0).and_then(|()| put(location, model.directory.as_ptr()))
    })
}

/// Returns the configuration with its defaults, as JSON (version 1). The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelConfig(
    model: *mut Model,
    config_version: u32,
    config: *mut *mut Message,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live model.
        let model = unsafe { borrow(model)? };
        check_version(config_version)?;
        let json = proto::json::to_json(&model.config.lock());
        // SAFETY: null or writable.
        unsafe { give_json(config, &json) }
    })
}

/// The only version of the configuration format that the interface defines.
pub(crate) fn check_version(config_version: u32) -> Result<(), Error> {
    if config_version == 1 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "model configuration version {config_version} not supported, supported versions are: 1"
    )))
}

/// Returns whether the library should complete the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelAutoCompleteConfig(
    model: *mut Model,
    auto_complete: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(auto_complete, borrow(model)?.is_auto_completed()) })
}

/// Completes the configuration. Allowed only while the model is being initialized. The caller keeps owning the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelSetConfig(
    model: *mut Model,
    config_version: u32,
    config: *mut Message,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live.
        let (model, config) = unsafe { (borrow(model)?, borrow(config)?) };
        check_version(config_version)?;
        let parsed = proto::json::parse(config.json()).map_err(|error| Error::invalid(error.to_string()))?;
        model.complete(parsed.config)
    })
}

/// Returns the server of the model. It belongs to the program that made it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelServer(
    model: *mut Model,
    server: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(server, borrow(model)?.server.0) })
}

/// Returns the model's backend; null if the backend is not a shared library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelBackend(
    model: *mut Model,
    backend: *mut *mut Backend,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let its = borrow(model)?.backend.as_ref();
        put(backend, its.map_or(ptr::null_mut(), |its| Arc::as_ptr(its).cast_mut()))
    })
}

/// Returns the pointer that the library has stored with the model; null at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelState(model: *mut Model, state: *mut *mut c_void) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(state, borrow(model)?.state.load(Acquire)) })
}

/// Stores a pointer with the model. The library keeps owning what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelSetState(model: *mut Model, state: *mut c_void) -> *mut CError {
    // SAFETY: null or a live model.
    guard(|| unsafe { borrow(model) }.map(|own| own.state.store(state, Release)))
}

/// Reports how much memory of each kind the model uses besides its instances. It replaces the previous report. The
/// library keeps owning the attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelReportMemoryUsage(
    model: *mut Model,
    usage: *mut *mut BufferAttributes,
    usage_size: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live model; that many live attributes.
        let (model, amounts) = unsafe { (borrow(model)?, MemoryUse::read(usage, usage_size)?) };
        log::debug!("model '{}' uses {amounts}", model.name());
        model.memory.report(amounts);
        Ok(())
    })
}
