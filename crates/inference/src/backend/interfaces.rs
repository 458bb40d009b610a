//! What the server asks of backends, their models and the instances of those.
use std::{collections::BTreeMap, num::NonZeroU32, path::PathBuf, pin::Pin, sync::Arc};

use config::{ConfigErrors, KnownConfigNames, ModelConfig};
use scheduling::InstanceDevice;
use vocabulary::{Error, MemoryKind, Name};

use super::{execution::Execution, implementation::Implementation};
use crate::{ExecutionTimes, Inferer};

/// A framework that can open models.
pub trait Backend: Send + Sync {
    /// The name to which `backend` in a model configuration refers.
    fn name(&self) -> &str;

    /// The path of its library, for the table of backends in the log.
    fn location(&self) -> String {
        String::new()
    }

    /// The directories in which the backend searches for files that models may share, in this order. Empty for a
    /// built-in backend.
    fn directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The names that the backend understands. `None` if only the backend itself can know them.
    fn known_names(&self) -> Option<KnownConfigNames> {
        None
    }

    /// The name under which `--backend-config` sets options of this backend.
    fn settings_name(&self) -> &str {
        self.name()
    }

    /// Whether the backend, which is built into the server, runs a model. If it does not, a library of the name that the
    /// model's configuration has may. A backend runs no model that [`ModelSource::implementation`] leaves to Triton, even
    /// if that has the name of another backend. May block.
    ///
    /// # Errors
    /// A setting has a value that is not allowed.
    fn runs(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
        let is_here = || Ok(source.implementation(settings)? != Some(Implementation::Triton));
        if source.asks_for(self.name()) { is_here() } else { Ok(false) }
    }

    /// The instance groups for a model whose configuration has none, the best first.
    fn preferred_groups(&self) -> Vec<proto::ModelInstanceGroup> {
        Vec::new()
    }

    /// Which library the backend needs and this machine lacks, and how to get it, as one sentence. Looks for files and opens
    /// none of them. May block. `None`: nothing is known to be missing.
    fn missing_runtime(&self, settings: &BTreeMap<String, String>) -> Option<String> {
        let _ = settings;
        None
    }

    /// Reads what the files of a version say of it, without running anything of the model and without libraries. May
    /// block. `None` if only [`Backend::open`] can tell.
    ///
    /// # Errors
    /// The files are missing, or are not a model of this backend.
    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        let _ = source;
        Ok(None)
    }

    /// Opens one version of a model. May block: a thread for loading models calls it.
    ///
    /// # Errors
    /// The reason why the version cannot be served. It becomes the reason of the UNAVAILABLE state of the version.
    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error>;
}

/// The first backend of each name. Several that share a name run the models of that name between them, and are one for who
/// configures them: the first one knows the names that all read.
pub fn first_of_each_name(backends: &[Arc<dyn Backend>]) -> impl Iterator<Item = &Arc<dyn Backend>> {
    backends.iter().enumerate().filter_map(|(position, backend)| {
        let is_first = backends[..position].iter().all(|earlier| earlier.name() != backend.name());
        is_first.then_some(backend)
    })
}

/// What a backend reads from the files of a version that it has not opened.
pub trait ModelInspection: Send + Sync {
    /// Completes a configuration as [`BackendModel::complete_config`] does.
    ///
    /// # Errors
    /// The files contradict the configuration.
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        let _ = config;
        Ok(None)
    }

    /// Whether [`ModelInspection::complete_config`] completes all that the backend would complete. If not, inputs and
    /// outputs that the configuration lacks may come when the model is loaded.
    fn completes_all(&self) -> bool {
        true
    }

    /// Adds the rules that a complete configuration breaks, which would make the load fail.
    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        let _ = (config, errors);
    }

    /// Adds the rules that a complete configuration may break: only the load can tell.
    fn doubt(&self, config: &ModelConfig, doubts: &mut ConfigErrors) {
        let _ = (config, doubts);
    }

    /// The source code in Python that the backend runs.
    fn python_source(&self) -> Option<PythonSource> {
        None
    }
}

/// A file with source code in Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonSource {
    /// The file.
    pub file: PathBuf,
    /// The program that the operator has chosen for running it; `None` if it runs in an environment of its own.
    pub interpreter: Option<String>,
    /// The program that the model names instead. It may be any program.
    pub own_interpreter: Option<String>,
    /// Whether the server may run it in an environment that it makes. Then the packages of `interpreter` do not matter.
    pub server_makes_environment: bool,
}

/// Finds backends that are not built into the server.
pub trait BackendFinder: Send + Sync {
    /// Returns the backend whose library is in the model's own directories, if there is one. May block.
    ///
    /// # Errors
    /// The library exists but cannot be used.
    fn brought_by(
        &self,
        source: &ModelSource,
        settings: &BackendSettings<'_>,
    ) -> Result<Option<Arc<dyn Backend>>, Error>;

    /// Returns the backend that the configuration of a model names. May block.
    ///
    /// # Errors
    /// INVALID_ARG if no backend has that name; the backend's own error if it does not start.
    fn find(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<Arc<dyn Backend>, Error>;

    /// Whether a library of the model's own directories, or of the backends' directory, would run a model. Opens nothing.
    /// May block. `own`: only of the model's own directories.
    ///
    /// # Errors
    /// As [`BackendFinder::find`], as far as the files tell.
    fn has_library(
        &self,
        source: &ModelSource,
        settings: &BackendSettings<'_>,
        own: bool,
    ) -> Result<bool, Error>;

    /// The backends that the finder has found so far, by name.
    fn found(&self) -> Vec<Arc<dyn Backend>>;
}

/// Returns the `--backend-config` settings that apply to the backend with a name.
pub type BackendSettings<'a> = dyn Fn(&str) -> BTreeMap<String, String> + 'a;

/// The location of a model version, and what the server knows of it before a backend opens it.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// Model name.
    pub name: Name,
    /// Version number.
    pub version: i64,
    /// The model's directory, which contains `config.pbtxt`.
    pub model_directory: PathBuf,
    /// The version's directory in the model's directory.
    pub version_directory: PathBuf,
    /// The declared and normalised configuration with its instance groups, before the backend completes it.
    pub declared: Arc<proto::ModelConfig>,
    /// The `--backend-config` settings that apply to this backend: the global ones, overridden by its own.
    pub settings: BTreeMap<String, String>,
    /// Sends requests of this model to other models; `None` for a model outside a server.
    pub inferer: Option<Arc<dyn Inferer>>,
    /// `--host-policy` settings, by the policy's name.
    pub host_policies: Arc<BTreeMap<String, BTreeMap<String, String>>>,
}

impl ModelSource {
    /// Whether the configuration names this backend, and as its library none or the one that Triton's has.
    pub fn asks_for(&self, backend: &str) -> bool {
        let (name, runtime) = (&self.declared.backend, &self.declared.runtime);
        name == backend && (runtime.is_empty() || *runtime == format!("libtriton_{name}.so"))
    }

    /// Who is to run the model by the settings of the backend that the configuration names. `None`: they do not say.
    ///
    /// # Errors
    /// INVALID_ARG if the setting has another value.
    pub fn implementation(&self, settings: &BackendSettings<'_>) -> Result<Option<Implementation>, Error> {
        let backend = &self.declared.backend;
        Implementation::of(backend, &settings(backend))
    }

    /// The parameters of the declared configuration.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let parameters = self.declared.parameters.iter();
        parameters.map(|(name, value)| (name.clone(), value.string_value.clone())).collect()
    }
}

/// See [`BackendModel::released`].
pub type ReleaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One opened model version, shared by its instances.
pub trait BackendModel: Send + Sync {
    /// Adds the fields that the model file defines and that the configuration leaves open. The server calls it once,
    /// before validation, unless `--disable-auto-complete-config` is given. The server takes over only
    /// `max_batch_size`, `input`, `output`, the scheduling choice if there was none, and the transaction policy. Returns how
    /// many rows a request may have, if the backend has chosen a `max_batch_size` that is smaller.
    ///
    /// # Errors
    /// The model file contradicts the configuration.
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        let _ = config;
        Ok(None)
    }

    /// Receives the final configuration, before the server builds the first instance.
    fn configured(&self, config: &proto::ModelConfig) {
        let _ = config;
    }

    /// Whether the server may build several instances at the same time.
    fn builds_in_parallel(&self) -> bool {
        true
    }

    /// The bytes that the model and its instances use in each memory, as far as the backend knows them. Each memory
    /// appears once. A network thread calls this when a client asks for statistics: it must not block.
    fn memory_usage(&self) -> Vec<MemoryUsage> {
        Vec::new()
    }

    /// How often processes of the model were started again since it was opened. `None`: it has no processes of its own, or
    /// the backend does not know. A network thread calls this when somebody asks what the server does: it must not block.
    fn process_restarts(&self) -> Option<u64> {
        None
    }

    /// Whether the files of the backend itself have changed since it opened the model, so that a new load would use
    /// other code. The server asks before it loads the model again. May block.
    fn is_outdated(&self) -> bool {
        false
    }

    /// Whether the instances can read inputs in memory of devices. The server refuses such requests to other models.
    fn reads_device_memory(&self) -> bool {
        false
    }

    /// Whether the instances copy inputs in foreign memory before they use them, unless the memory may be used in place.
    /// For other models, the server copies such inputs when the request arrives.
    fn copies_foreign_memory(&self) -> bool {
        false
    }

    /// Whether the backend implements [`BackendModel::ready`]. The server calls that method only then.
    fn reports_readiness(&self) -> bool {
        false
    }

    /// Whether the instances can accept requests now. The server calls this when a client asks for readiness, while
    /// instances exist: on any thread, on several threads at once, also while instances execute. May block.
    ///
    /// # Errors
    /// The reason why the instances cannot accept requests. Clients see a model that is not ready, and the log has
    /// the reason.
    fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns when the backend has released all that its instances were given. The server asks after the last request has
    /// ended, and drops the instances afterwards. So a backend that releases late takes no thread. The future holds no part
    /// of the model, and is called in a tokio runtime.
    fn released(&self) -> ReleaseFuture {
        Box::pin(std::future::ready(()))
    }

    /// The server stops: the ends of instances wait no longer for what they were given.
    fn abandon_releases(&self) {}

    /// Builds one instance for the completed, validated configuration. The thread that will run the instance calls
    /// it.
    ///
    /// # Errors
    /// The reason why the instance cannot run. The load of the version then fails.
    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error>;
}

/// The bytes used in one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// Ordinal of the device of the memory; 0 for the host.
    pub id: i64,
    /// Number of bytes.
    pub byte_size: u64,
}

/// The instance to build, and its device.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// `<group>_<index>`, the name in logs and errors.
    pub name: Name,
    /// Kind and ordinal of the device.
    pub device: InstanceDevice,
    /// The number of threads that a computation of this instance should use: its share of the processors of the
    /// process.
    pub threads: std::num::NonZeroUsize,
    /// The server builds the instance but gives it no work (`passive`).
    pub passive: bool,
}

/// A built instance. The variant tells whether it may change threads between executions.
pub enum BuiltInstance {
    /// Runs on the thread that built it, and is dropped on that thread.
    ThreadBound(Box<dyn BackendInstance>),
    /// Any thread may run it, one at a time, and drop it. The server then executes short batches on the thread on which
    /// the request arrives, which saves two thread switches, and others on threads that all models share.
    Movable(Box<dyn BackendInstance + Send>),
}

/// One executable copy of a model. At most one thread at a time calls it.
pub trait BackendInstance {
    /// Runs one batch.
    ///
    /// The backend must respond to every execution through its responder, now or later. Dropping a responder sends an
    /// internal error. A panic fails the batch and makes the model unavailable.
    fn execute(&mut self, batch: Batch);

    /// Whether an execution that begins now keeps its thread for tens of microseconds only, so that a network thread may
    /// run it. `None` if only the durations of earlier executions can tell; the server measures them. Must not block.
    fn is_brief(&self) -> Option<bool> {
        None
    }
}

/// Requests that run together. Their rows never exceed `max_batch_size`. Inputs that do not allow ragged batches have
/// equal shapes.
#[derive(Debug)]
pub struct Batch {
    /// In the order in which the model must see them; never empty.
    pub executions: Vec<Execution>,
    /// Records the times at which the backend reaches each phase.
    pub execution_times: Arc<ExecutionTimes>,
}
