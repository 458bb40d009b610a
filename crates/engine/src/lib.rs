//! The runtime: owns models, threads, clocks and counters, and drives the pure policies.
//!
//! [`Engine`] is its whole public interface. It knows no protocol and no C type. Backends implement the traits of
//! [`inference::backend`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use inference::{
    ByteBudget, Error, MetricSource,
    agent::AgentFinder,
    backend::{Backend, BackendFinder},
    batching::StrategyOpener,
    cache::ResponseCache,
};

mod check;
mod clock;
mod executor;
mod fingerprint;
mod host_policy;
mod in_flight;
mod limiter;
mod limits;
mod model;
mod observe;
mod order;
mod processors;
mod rejection;
mod repository;

use clock::TimerThread;
pub use clock::now;
pub use host_policy::HostPolicy;
pub use limits::MemoryLimits;
pub use model::Model;
use observe::metrics::Exposition;
pub use observe::{
    BatchStatistic, DurationStatistic, ModelStatistics, ResponseStatistic, metrics::MetricsOptions,
};
pub use processors::{ProcessorSet, usable as usable_processors};
pub use repository::{IndexEntry, ModelState};
use repository::{Loader, Repository};

/// The settings of an engine, fixed at its start.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Name and version of the server, and the extensions it supports.
    pub server: ServerMetadata,
    /// Directories of the model repositories.
    pub repositories: Vec<PathBuf>,
    /// The server is ready only if all models are ready (`--strict-readiness`).
    pub strict_readiness: bool,
    /// How many model versions load at the same time, at least 1 (`--model-load-thread-count`).
    pub load_threads: usize,
    /// Further attempts after a load has failed (`--model-load-retry-count`).
    pub load_retries: usize,
    /// Backends complete what configurations leave open (not `--disable-auto-complete-config`).
    pub auto_complete: bool,
    /// `configs/<name>.pbtxt` takes precedence over `config.pbtxt` (`--model-config-name`).
    pub config_name: Option<String>,
    /// Directory of repository agents (`--repoagent-directory`). The error for a missing agent names it.
    pub agent_directory: PathBuf,
    /// `--backend-config`, in order: backend or all, setting, value.
    pub backend_settings: Vec<BackendSetting>,
    /// How much memory the server may hold for clients.
    pub limits: MemoryLimits,
    /// Which metrics the engine shows.
    pub metrics: MetricsOptions,
    /// A dynamic batcher takes nothing from its queue until the queue has held so many requests once; 0 means off.
    /// Tests use it (`TRITONSERVER_DELAY_SCHEDULER`).
    pub hold_until_queued: usize,
    /// Sequence batchers also wait until their backlog holds so many requests; 0 means off
    /// (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`).
    pub hold_until_backlogged: usize,
    /// The shared resources of instances (`--rate-limit=execution_count`). A resource without an entry has as many
    /// units as the instance that needs most of it. `None`: no rate limiter.
    pub rate_limit: Option<Vec<RateLimitResource>>,
    /// Host policies by name (`--host-policy`). Instance groups refer to them by name. A group without a name uses
    /// `cpu` or `model`.
    pub host_policies: BTreeMap<String, HostPolicy>,
    /// Whether the engine loads models despite certain problems.
    pub load_policy: LoadPolicy,
}

/// Whether the engine loads models despite certain problems. The default is Triton's behaviour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadPolicy {
    /// If some versions of a model fail to load, the engine serves the others (`--serve-partial-models`). Otherwise it
    /// serves none of them.
    pub partial_models: bool,
    /// Instances of groups that ask for GPUs run on the CPU (`--gpu-instances-on-cpu`). Otherwise the engine refuses a
    /// model with such groups.
    pub gpu_groups_on_cpu: bool,
}

/// One `--rate-limit-resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitResource {
    /// Name of the resource.
    pub name: String,
    /// Number of units.
    pub count: u32,
    /// The device that has the units; `None`: each device has them.
    pub device: Option<u32>,
}

/// One `--backend-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSetting {
    /// The backend; `None` means all backends.
    pub backend: Option<String>,
    /// Name of the setting.
    pub key: String,
    /// Value of the setting.
    pub value: String,
}

/// What the server reports about itself.
#[derive(Debug, Clone, Default)]
pub struct ServerMetadata {
    /// Name of the server (`--id`).
    pub name: String,
    /// Version of the behaviour that clients see.
    pub version: String,
    /// Names of the supported protocol extensions.
    pub extensions: Vec<String>,
}

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
    /// Opens libraries of custom batching strategies.
    pub strategies: Option<Arc<dyn StrategyOpener>>,
    /// The metrics of plug-ins. The engine shows them after its own.
    pub more_metrics: Option<Arc<dyn MetricSource>>,
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
    strict_readiness: bool,
    repository: Repository,
    exposition: Exposition,
    inflight: Arc<ByteBudget>,
    /// The repositories could not be read, so the engine has no models.
    failed_to_start: AtomicBool,
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
    /// INTERNAL if the system refuses to start a thread.
    pub fn new(options: EngineOptions, plugins: impl Into<Plugins>) -> Result<Self, Error> {
        let clock = TimerThread::start()
            .map_err(|error| Error::internal(format!("failed to start a thread: {error}")))?;
        let plugins = plugins.into();
        let exposition = Exposition::new(options.metrics, plugins.more_metrics.clone());
        let (server, strict_readiness) = (options.server.clone(), options.strict_readiness);
        let (repositories, threads) = (options.repositories.clone(), options.load_threads.max(1));
        let inflight = ByteBudget::new(options.limits.inflight_bytes);
        let loader = Loader::new(options, plugins, clock, inflight.clone());
        let repository = Repository::start(loader, repositories, threads);
        let shared = EngineInner {
            server,
            strict_readiness,
            repository,
            exposition,
            inflight,
            failed_to_start: AtomicBool::new(false),
            exiting: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Loads every model of the repositories. Returns when each model is ready or has failed.
    ///
    /// # Errors
    /// A repository that cannot be read. The engine is then neither live nor ready and has no models.
    pub async fn load_models(&self) -> Result<(), Error> {
        let loaded = self.shared.repository.load_all().await;
        self.shared.failed_to_start.store(loaded.is_err(), Ordering::Release);
        loaded
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

    /// Whether the server is ready for requests. With strict readiness, all its models must be ready, also as their
    /// backends report it. Threads that may block ask the backends.
    ///
    /// # Errors
    /// UNAVAILABLE while the server is stopping.
    pub async fn ready(&self) -> Result<bool, Error> {
        let Some(models) = self.to_be_asked()? else { return Ok(false) };
        for model in models {
            if !model.ready().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`Engine::ready`], but asks on this thread. Blocks as long as a backend does.
    ///
    /// # Errors
    /// As [`Engine::ready`].
    pub fn ready_here(&self) -> Result<bool, Error> {
        Ok(self.to_be_asked()?.is_some_and(|models| models.iter().all(|model| model.ready_here())))
    }

    /// The models whose backends take part in the decision that the server is ready. `None` if it is not ready in any
    /// case.
    fn to_be_asked(&self) -> Result<Option<Vec<Arc<Model>>>, Error> {
        self.not_exiting()?;
        if self.failed_to_start() {
            return Ok(None);
        }
        if !self.shared.strict_readiness {
            return Ok(Some(Vec::new()));
        }
        let table = self.shared.repository.table();
        Ok(table.all_ready().then(|| table.telling_readiness()))
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
        !self.failed_to_start() && self.shared.repository.table().all_loaded()
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

    /// All models and their states, by name and version.
    pub fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
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
        Ok(models.iter().map(|model| model.statistics()).collect())
    }

    /// All metrics, as Prometheus text 0.0.4.
    pub fn metrics(&self) -> String {
        self.shared.exposition.text(self.shared.repository.table().built().iter())
    }

    /// Loads or reloads a model.
    ///
    /// # Errors
    /// UNAVAILABLE: in control mode `none` models are loaded at start only.
    pub async fn load(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        Err(not_explicit())
    }

    /// Unloads a model.
    ///
    /// # Errors
    /// UNAVAILABLE: in control mode `none` models stay loaded.
    pub async fn unload(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        Err(not_explicit())
    }

    /// The number of accepted requests whose last response has not been sent.
    pub fn in_flight(&self) -> usize {
        self.shared.repository.table().built().iter().map(|model| model.in_flight()).sum()
    }

    /// From now on the engine reports that the server is exiting, and no request waits for others to share its batch.
    /// The engine still accepts requests: endpoints may hold some that came before.
    pub fn announce_exit(&self) {
        self.shared.exiting.store(true, Ordering::Release);
        self.shared.repository.table().built().iter().for_each(|model| model.end_queue_delay());
    }

    /// Accepts no new requests, lets accepted requests finish, and ends all models.
    ///
    /// # Errors
    /// INTERNAL if that takes longer than `grace`. The requests and models that still run are then lost with the
    /// process.
    pub async fn stop(&self, grace: Duration) -> Result<(), Error> {
        self.announce_exit();
        let models = self.shared.repository.table().built();
        models.iter().for_each(|model| model.drain());
        let all_closed = async {
            self.report_in_flight(&models, grace).await;
            self.shared.repository.unload_all().await;
        };
        let expired = |_| Error::internal("Exit timeout expired. Exiting immediately.");
        tokio::time::timeout(grace, all_closed).await.map_err(expired)
    }

    /// Returns when no request is in flight. Logs once a second what is in flight.
    async fn report_in_flight(&self, models: &[Arc<Model>], grace: Duration) {
        if self.in_flight() > 0 {
            log::info!("Waiting for in-flight requests to complete.");
        }
        let mut waited = Duration::ZERO;
        while self.in_flight() > 0 {
            if waited.subsec_nanos() == 0 {
                let busy: Vec<_> = models.iter().filter(|model| model.in_flight() > 0).collect();
                let left = grace.saturating_sub(waited).as_secs();
                log::info!(
                    "Timeout {left}: Found {} model versions that have in-flight inferences",
                    busy.len()
                );
                for model in busy {
                    let (name, version, count) = (model.name(), model.version(), model.in_flight());
                    log::info!("Model '{name}' (version {version}) has {count} in-flight inferences");
                }
            }
            tokio::time::sleep(EXIT_TICK).await;
            waited += EXIT_TICK;
        }
        log::info!("All models are stopped, unloading models");
    }
}

/// How often a stopping server checks whether it may end.
const EXIT_TICK: Duration = Duration::from_millis(5);

fn not_explicit() -> Error {
    Error::unavailable("explicit model load / unload is not allowed if polling is enabled")
}
