//! The runtime: owns models, threads, clocks and counters, and drives the pure policies.
//!
//! [`Engine`] is its whole public interface. It knows no protocol and no C type. Backends implement the traits of
//! [`inference::backend`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use inference::{
    ByteBudget, Error, MAX_STORED_NAME, MetricSource, Name,
    agent::AgentFinder,
    backend::{Backend, BackendFinder},
    batching::StrategyOpener,
    cache::ResponseCache,
    check_length,
    metrics::{MetricsForm, MetricsText},
    repository::RepositoryOpener,
};
use tokio::runtime::Handle;

mod check;
mod clock;
mod control_groups;
mod engine_threads;
mod ensemble;
mod executor;
pub mod explain;
mod fingerprint;
mod host_policy;
mod in_flight;
mod instance_table;
mod limiter;
mod limits;
mod memory_pressure;
mod model;
mod model_loader;
mod model_state;
mod network_threads;
mod notified;
mod observe;
mod options;
mod order;
mod processors;
mod readiness;
mod regular_file;
mod rejection;
mod repository;
mod snapshot;
mod stopping;
mod thread_group;

pub use clock::now;
use engine_threads::EngineThreads;
pub use host_policy::HostPolicy;
pub use limits::{MemoryLimits, usable_memory};
pub use model::Model;
use model_loader::EngineModelLoader;
pub use model_state::{IndexEntry, ModelState, NotReady};
use observe::metrics::Exposition;
pub use observe::{BatchStatistic, DurationStatistic, MetricsOptions, ModelStatistics, ResponseStatistic};
pub use options::{
    BackendSetting, ControlMode, EngineOptions, LoadPolicy, ModelControl, RateLimitResource, ServerMetadata,
    StartupModels,
};
pub use processors::{ProcessorSet, usable as usable_processors};
use readiness::ReadinessPolicy;
pub use readiness::{Readiness, ReadinessRule};
pub use repository::layout;
pub use repository::{LoadParameters, NoPrivateDirectories, Polling, remove_private_directories};
use repository::{Loader, Repository, RepositoryOptions};
pub use thread_group::ThreadGroup;

/// The plug-ins of an engine.
#[derive(Clone, Default)]
pub struct Plugins {
    /// Built-in backends.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Finds the other backends.
    pub finder: Option<Arc<dyn BackendFinder>>,
    /// Stores responses of the models that enable the response cache.
    pub cache: Option<Arc<dyn ResponseCache>>,
    /// Finds repository agents.
    pub agents: Option<Arc<dyn AgentFinder>>,
    /// Opens repositories in object stores. Without one, each repository is a directory.
    pub repositories: Option<Arc<dyn RepositoryOpener>>,
    /// Opens libraries of custom batching strategies.
    pub strategies: Option<Arc<dyn StrategyOpener>>,
    /// The metrics of plug-ins. The engine shows them after its own.
    pub more_metrics: Option<Arc<dyn MetricSource>>,
    /// How freed memory goes back to the system.
    pub memory: Option<MemoryFunctions>,
}

impl Plugins {
    /// The same plug-ins with a further source of metrics, if there is one.
    #[must_use]
    pub fn with_metrics(self, source: Option<Arc<dyn MetricSource>>) -> Self {
        let more_metrics = match (self.more_metrics, source) {
            (Some(first), Some(second)) => {
                Some(Arc::new(MetricSourcePair { first, second }) as Arc<dyn MetricSource>)
            }
            (first, second) => first.or(second),
        };
        Self { more_metrics, ..self }
    }
}

/// Two sources of metrics as one.
struct MetricSourcePair {
    first: Arc<dyn MetricSource>,
    second: Arc<dyn MetricSource>,
}

impl MetricSource for MetricSourcePair {
    fn append_to(&self, text: &mut MetricsText) {
        self.first.append_to(text);
        self.second.append_to(text);
    }

    fn value(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        self.first.value(family, label).or_else(|| self.second.value(family, label))
    }
}

/// How the process returns freed memory to the system. This depends on its allocators.
#[derive(Debug, Clone, Copy)]
pub struct MemoryFunctions {
    /// A time begins (`true`) or ends (`false`) in which freed memory goes back at once, because it is not needed again
    /// soon or because others need it: a thread builds or ends a copy of a model, or requests hold much memory. Such times
    /// overlap. Must not block.
    pub return_at_once: fn(bool),
    /// Returns all freed memory. A blocking thread calls it after copies have been built or have ended, at most once a
    /// second.
    pub return_freed: fn(),
}

impl From<Vec<Arc<dyn Backend>>> for Plugins {
    fn from(backends: Vec<Arc<dyn Backend>>) -> Self {
        Self { backends, ..Self::default() }
    }
}

/// A running inference server without its protocols. Clones refer to the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineInner>,
}

struct EngineInner {
    server: ServerMetadata,
    readiness: ReadinessPolicy,
    repository: Repository,
    exposition: Exposition,
    inflight: Arc<ByteBudget>,
    control: ModelControl,
    threads: EngineThreads,
    /// The repositories could not be read, so the engine has no models.
    failed_to_start: AtomicBool,
    /// A model of the start could not be loaded.
    lacks_startup_models: AtomicBool,
    /// The server is not ready, because it will stop soon.
    stop_announced: AtomicBool,
    exiting: AtomicBool,
}

impl Engine {
    /// Calls [`Engine::new`] and then [`Engine::load_models`].
    ///
    /// # Errors
    /// The errors of both.
    pub async fn start(options: EngineOptions, plugins: impl Into<Plugins>) -> Result<Self, Error> {
        let engine = Self::new(options, plugins)?;
        engine.load_models().await?;
        Ok(engine)
    }

    /// An engine without models. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// INTERNAL if the system refuses to start a thread. INVALID_ARG for the URL of a repository that breaks a rule.
    pub fn new(options: EngineOptions, plugins: impl Into<Plugins>) -> Result<Self, Error> {
        let threads = EngineThreads::start()
            .map_err(|error| Error::internal(format!("failed to start a thread: {error}")))?;
        let plugins = plugins.into();
        let exposition = Exposition::new(
            Arc::new(options.metrics.clone()),
            plugins.more_metrics.clone(),
            plugins.cache.clone(),
        );
        let (server, control) = (options.server.clone(), options.control.clone());
        let readiness = ReadinessPolicy::new(options.readiness, control.startup_names());
        let repository = RepositoryOptions {
            paths: options.repositories.clone(),
            opener: plugins.repositories.clone(),
            namespacing: options.namespacing,
            load_threads: options.load_threads.max(1),
            sequence_limit: options.sequence_limit,
            takes_overrides: matches!(control, ModelControl::Explicit(_))
                && !options.load_policy.refuse_overrides,
            polling: match control {
                ModelControl::Poll(polling) => Some(polling),
                ModelControl::None | ModelControl::Explicit(_) => None,
            },
        };
        let inflight = memory_pressure::observed_budget(options.limits.inflight_bytes, plugins.memory);
        let loader = Loader::new(options, plugins, inflight.clone(), threads.clone());
        let repository = Repository::start(loader, repository)?;
        let shared = EngineInner {
            server,
            readiness,
            repository,
            exposition,
            inflight,
            control,
            threads,
            failed_to_start: AtomicBool::new(false),
            lacks_startup_models: AtomicBool::new(false),
            stop_announced: AtomicBool::new(false),
            exiting: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let (engine, runtime) = (Arc::downgrade(&shared), Handle::current());
        shared.repository.set_model_loader(Arc::new(EngineModelLoader { engine, runtime }));
        Ok(Self { shared })
    }

    /// Loads the models of the start: every model of the repositories, or those that the options name. Returns when
    /// each model is ready or has failed.
    ///
    /// # Errors
    /// A repository that cannot be read. The engine is then neither live nor ready and has no models.
    pub async fn load_models(&self) -> Result<(), Error> {
        let loaded = match &self.shared.control {
            ModelControl::Explicit(StartupModels::Named(names)) => {
                self.load_named(names).await;
                Ok(())
            }
            ModelControl::None | ModelControl::Poll(_) | ModelControl::Explicit(StartupModels::All) => {
                let loaded = self.shared.repository.load_all().await;
                let names = self.shared.repository.table().names().cloned().collect();
                self.shared.readiness.started_with(names);
                loaded
            }
        };
        self.shared.failed_to_start.store(loaded.is_err(), Ordering::Release);
        loaded
    }

    async fn load_named(&self, names: &BTreeSet<String>) {
        let loads = names.iter().map(|name| self.shared.repository.load(name, LoadParameters::default()));
        for (name, loaded) in names.iter().zip(join_all(loads).await) {
            if let Err(error) = loaded {
                log::error!("failed to load the startup model '{name}': {}", error.message.trim_end());
                self.shared.lacks_startup_models.store(true, Ordering::Release);
            }
        }
    }

    /// The budget for the bytes of requests. A protocol reserves the bytes that it receives there.
    pub fn inflight_bytes(&self) -> &Arc<ByteBudget> {
        &self.shared.inflight
    }

    /// A model version that is ready: the requested version, or the largest.
    ///
    /// # Errors
    /// NOT_FOUND, or UNAVAILABLE for a version that exists but is not ready, or if the repositories cannot be read.
    pub fn model(&self, name: &str, version: Option<i64>) -> Result<Arc<Model>, Error> {
        if self.failed_to_start() {
            return Err(Error::unavailable("Server not ready"));
        }
        self.shared.repository.table().model(name, version)
    }

    /// Whether the server is live: its repositories could be read.
    ///
    /// # Errors
    /// UNAVAILABLE while the server is stopping.
    pub fn live(&self) -> Result<bool, Error> {
        self.not_exiting().map(|()| !self.failed_to_start())
    }

    fn failed_to_start(&self) -> bool {
        self.shared.failed_to_start.load(Ordering::Acquire)
    }

    fn not_exiting(&self) -> Result<(), Error> {
        let exiting = self.shared.exiting.load(Ordering::Acquire);
        if exiting { Err(Error::unavailable("Server exiting")) } else { Ok(()) }
    }

    /// Whether each directory of the repositories is a model with versions, all of them ready.
    pub fn all_loaded(&self) -> bool {
        !self.failed_to_start()
            && !self.shared.lacks_startup_models.load(Ordering::Acquire)
            && self.shared.repository.table().all_loaded()
    }

    /// Whether that version, or any version, is ready, also as its backend reports it. A thread that may block asks the
    /// backend. An unknown model is not ready; it is not an error.
    pub async fn model_ready(&self, name: &str, version: Option<i64>) -> bool {
        match self.model(name, version) {
            Ok(model) => model.ready().await,
            Err(_) => false,
        }
    }

    /// What the server reports about itself.
    pub fn server(&self) -> &ServerMetadata {
        &self.shared.server
    }

    /// The versions of a model that are ready, ascending.
    pub fn ready_versions(&self, name: &str) -> Vec<i64> {
        self.shared.repository.table().ready_versions(name)
    }

    /// All models and their states, by name and version. In control mode `explicit` also the models of the repositories
    /// that were never loaded; threads that may block read the repositories.
    pub async fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        if matches!(self.shared.control, ModelControl::Explicit(_))
            && let Ok(lines) = self.shared.repository.index(ready_only).await
        {
            return lines;
        }
        self.known_models(ready_only)
    }

    /// The models that were loaded, or that could not be loaded, and their states, by name and version.
    pub fn known_models(&self, ready_only: bool) -> Vec<IndexEntry> {
        self.shared.repository.table().index(ready_only)
    }

    /// Counters of the ready versions of one model, or of all models, by name and version.
    ///
    /// # Errors
    /// INVALID_ARG for a model or version that is not ready.
    pub fn statistics(
        &self,
        name: Option<&str>,
        version: Option<i64>,
    ) -> Result<Vec<ModelStatistics>, Error> {
        let models = self.ready_models(name, version)?;
        Ok(models.iter().map(|model| model.statistics()).collect())
    }

    /// Removes the answers of a version, or of all versions of a model, from the response cache. Returns how many there
    /// were.
    ///
    /// # Errors
    /// As [`statistics`](Self::statistics), and as [`Model::empty_cache`].
    pub async fn empty_cache(&self, name: &str, version: Option<i64>) -> Result<u64, Error> {
        let mut removed = 0;
        for model in self.ready_models(Some(name), version)? {
            removed += model.empty_cache().await?;
        }
        log::info!("removed {removed} answers of model '{name}' from the response cache");
        Ok(removed)
    }

    /// The versions that are ready: of all models, or of the model with that name, or that one version.
    fn ready_models(&self, name: Option<&str>, version: Option<i64>) -> Result<Vec<Arc<Model>>, Error> {
        let mut models = self.shared.repository.table().ready();
        if let Some(name) = name {
            models.retain(|model| model.name() == name);
            if models.is_empty() {
                return Err(Error::invalid(format!("requested model '{name}' is not available")));
            }
            models.retain(|model| version.is_none_or(|version| model.version() == version));
            if models.is_empty() {
                return Err(Error::invalid(format!(
                    "requested model version is not available for model '{name}'"
                )));
            }
        }
        Ok(models)
    }

    /// All metrics as text.
    pub fn metrics(&self, form: MetricsForm) -> String {
        let table = self.shared.repository.table();
        self.shared.exposition.text(form, table.built().iter(), table.readable())
    }

    /// The value of a metric of a plug-in, by the name of its family and one of its labels.
    pub fn plugin_metric(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        self.shared.exposition.plugin_metric(family, label)
    }

    /// Loads or reloads a model, with its files in a repository or with what the caller gives. Returns when it is ready
    /// or has failed. If it has failed, the model serves what it served before.
    ///
    /// # Errors
    /// Why the model cannot be loaded. UNAVAILABLE if the control mode is not `explicit`. UNSUPPORTED if `given` brings
    /// something and the engine refuses that (`LoadPolicy::refuse_overrides`).
    pub async fn load(&self, name: &str, given: LoadParameters) -> Result<(), Error> {
        self.is_explicit()?;
        check_name(name)?;
        self.shared.repository.load(name, given).await
    }

    /// Unloads a model, whether it is loaded or not. Returns when it accepts no more requests; those that it has
    /// accepted go on.
    ///
    /// # Errors
    /// UNAVAILABLE if the control mode is not `explicit`, or if the server is stopping.
    pub async fn unload(&self, name: &str) -> Result<(), Error> {
        self.is_explicit()?;
        check_length("the name of the model", name, MAX_STORED_NAME)?;
        self.shared.repository.unload(name, false).await?;
        self.shared.readiness.unloaded(name);
        Ok(())
    }

    /// As [`unload`](Self::unload), and unloads the members of an ensemble too, except for those that were loaded by their
    /// own names or that other models need.
    ///
    /// # Errors
    /// As [`unload`](Self::unload).
    pub async fn unload_with_dependents(&self, name: &str) -> Result<(), Error> {
        self.is_explicit()?;
        check_length("the name of the model", name, MAX_STORED_NAME)?;
        self.shared.repository.unload(name, true).await?;
        self.shared.readiness.unloaded(name);
        Ok(())
    }

    /// Returns when no version of a model serves or ends, and none is being loaded: after an [`unload`](Self::unload) it has
    /// given back what it held.
    pub async fn model_ended(&self, name: &str) {
        let is_there = |entry: &IndexEntry| {
            &*entry.name == name
                && matches!(
                    entry.state,
                    Some(ModelState::Ready | ModelState::Loading | ModelState::Unloading)
                )
        };
        self.shared.repository.until(|table| !table.index(false).iter().any(is_there)).await;
    }

    /// Adds a model repository. `names` has the names of models by the names of their directories.
    ///
    /// # Errors
    /// UNSUPPORTED if the control mode is not `explicit`; ALREADY_EXISTS or INVALID_ARG for the path; the error of
    /// an object store.
    pub async fn register_repository(
        &self,
        path: PathBuf,
        names: BTreeMap<String, Name>,
    ) -> Result<(), Error> {
        self.may_change_repositories("registration")?;
        self.shared.repository.register(path, names).await
    }

    /// Removes a model repository. Its models stay loaded.
    ///
    /// # Errors
    /// UNSUPPORTED if the control mode is not `explicit`; INVALID_ARG for a path that is not known.
    pub async fn unregister_repository(&self, path: PathBuf) -> Result<(), Error> {
        self.may_change_repositories("unregistration")?;
        self.shared.repository.unregister(path).await
    }

    /// Looks for changes in the repositories now.
    ///
    /// # Errors
    /// UNAVAILABLE if the control mode is not `poll`.
    pub async fn poll_repositories(&self) -> Result<(), Error> {
        match self.shared.control {
            ModelControl::Poll(_) => self.shared.repository.poll().await,
            ModelControl::None | ModelControl::Explicit(_) => Err(Error::unavailable("polling is disabled")),
        }
    }

    fn is_explicit(&self) -> Result<(), Error> {
        match self.shared.control {
            ModelControl::Explicit(_) => Ok(()),
            ModelControl::None | ModelControl::Poll(_) => Err(not_explicit()),
        }
    }

    fn may_change_repositories(&self, what: &str) -> Result<(), Error> {
        self.is_explicit().map_err(|_| {
            Error::unsupported(format!(
                "repository {what} is not allowed if model control mode is not EXPLICIT"
            ))
        })
    }

    /// The number of accepted requests whose last response has not been sent.
    pub fn in_flight(&self) -> usize {
        self.shared.repository.table().in_flight()
    }

    /// The number of running sequences, which may still get requests.
    pub fn live_sequences(&self) -> usize {
        self.shared.repository.table().live_sequences()
    }
}

fn not_explicit() -> Error {
    Error::unavailable("explicit model load / unload is not allowed if polling is enabled")
}

/// Refuses names that are no directory of a repository.
fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid("Model name cannot be empty. Please enter a valid name to deploy."));
    }
    check_length("the name of the model", name, MAX_STORED_NAME)?;
    if matches!(name, "." | "..") || name.contains(['/', '\0']) {
        return Err(Error::invalid(format!(
            "invalid model name '{name}', model name must not contain path traversal characters"
        )));
    }
    Ok(())
}
