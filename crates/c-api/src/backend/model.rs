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

use inference::{
    Error, Name,
    backend::{BackendModel, Instance, InstanceSpec, MemoryUsage, ModelSource, ReleaseFuture},
    config::{ModelConfig, complete},
    lock::Mutex,
};
use proto::ModelParameter;

use super::{
    Backend, ServerHandle,
    execute::Running,
    in_use::InUseCounts,
    instance::ModelInstance,
    instance_registry::InstanceRegistry,
    usage::{Account, Amounts},
};
use crate::{
    handle::{Handle, borrow, c_path, guard, put, readable},
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
    instance_registry: InstanceRegistry,
    in_use_counts: InUseCounts,
    memory: Account,
}

impl Handle for Model {
    const NAME: &'static str = "TRITONBACKEND_Model";
}

impl Model {
    fn opened(backend: &Arc<Backend>, source: &ModelSource) -> Self {
        Self::new(source, &source.declared, backend.server(), Some(backend.clone()))
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
        Self {
            directory: c_path(&source.model_directory),
            backend,
            server,
            config: Mutex::new(config.clone()),
            completed: Mutex::default(),
            typed: OnceLock::new(),
            outputs: OnceLock::new(),
            state: AtomicPtr::default(),
            instance_registry: InstanceRegistry::default(),
            in_use_counts: InUseCounts::default(),
            memory: Account::of_model(),
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
    pub(super) fn memory(&self) -> &Account {
        &self.memory
    }

    /// The instances of this model.
    pub(super) fn instance_registry(&self) -> &InstanceRegistry {
        &self.instance_registry
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

    /// The settings that a model of a backend in Python gets in addition to its own configuration.
    fn run_by_python(&self, backend: &Backend) {
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
        let Some(backend) = &self.backend else { return };
        if let Err(error) = backend.entries().model_finalize(self) {
            log::error!("failed finalizing model: {error}");
        }
    }
}

/// A model as the engine uses it.
#[derive(Debug)]
pub(super) struct OpenedModel {
    model: Arc<Model>,
    backend: Arc<Backend>,
}

impl OpenedModel {
    /// Lets the library initialize the model.
    ///
    /// # Errors
    /// The error of the library.
    pub(super) fn open(backend: &Arc<Backend>, source: &ModelSource) -> Result<Self, Error> {
        let opened = Self { model: Arc::new(Model::opened(backend, source)), backend: backend.clone() };
        if backend.is_run_by_python() {
            opened.model.run_by_python(backend);
        }
        backend.entries().model_initialize(&opened.model)?;
        Ok(opened)
    }
}

impl BackendModel for OpenedModel {
    fn reads_device_memory(&self) -> bool {
        true
    }

    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<(), Error> {
        if let Some(completed) = self.model.completed.lock().take() {
            *config = completed;
        }
        Ok(())
    }

    fn configured(&self, config: &proto::ModelConfig) {
        *self.model.config.lock() = config.clone();
        if self.backend.is_run_by_python() {
            self.model.run_by_python(&self.backend);
        }
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.model.memory.total()
    }

    fn is_outdated(&self) -> bool {
        self.backend.is_outdated()
    }

    fn reports_readiness(&self) -> bool {
        self.backend.entries().reports_readiness()
    }

    fn ready(&self) -> Result<(), Error> {
        let entries = self.backend.entries();
        self.model.instance_registry.ask(|instance| entries.instance_ready(instance))
    }

    fn released(&self) -> ReleaseFuture {
        Box::pin(self.model.in_use_counts.released())
    }

    fn abandon_releases(&self) {
        self.model.in_use_counts.abandon();
    }

    fn builds_in_parallel(&self) -> bool {
        self.backend.builds_in_parallel()
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<Instance, Error> {
        self.model.typed.get_or_init(|| config.clone());
        self.model.outputs.get_or_init(|| {
            let mut names: Vec<Name> = config.outputs.iter().map(|output| output.name.clone()).collect();
            names.sort();
            names.into()
        });
        let instance = ModelInstance::new(&self.model, config, spec);
        let running = Running::start(instance, self.backend.clone())?;
        // The interface promises that an instance is not executed twice at a time. It promises nothing about threads.
        let own_thread = self.model.source.settings.get("own-thread").is_some_and(|value| value == "true");
        Ok(if own_thread {
            Instance::ThreadBound(Box::new(running))
        } else {
            Instance::Movable(Box::new(running))
        })
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
        let (model, amounts) = unsafe { (borrow(model)?, Amounts::read(usage, usage_size)?) };
        log::debug!("model '{}' uses {amounts}", model.name());
        model.memory.report(amounts);
        Ok(())
    })
}
