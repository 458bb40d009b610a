//! The settings of an engine.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use host::{HostPolicy, MemoryLimits};
use vocabulary::Error;

/// The settings of an engine, fixed at its start.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Name and version of the server, and the extensions it supports.
    pub server: ServerMetadata,
    /// Directories of the model repositories, and URLs of those in object stores.
    pub repositories: Vec<PathBuf>,
    /// Which models are loaded, and when (`--model-control-mode`).
    pub control: ModelControl,
    /// Models of different repositories may have the same name (`--model-namespacing`).
    pub namespacing: bool,
    /// How long requests of running sequences go to the copy of a model that has been replaced
    /// (`--reload-sequence-timeout-secs`).
    pub sequence_limit: Duration,
    /// Which models must be ready so that the server is ready.
    pub readiness: ReadinessRule,
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
    pub backend_settings: Vec<inference::BackendSetting>,
    /// Models are loaded when requests come for them, within a budget (`--model-memory-budget`). `None`: all models are
    /// loaded at the start, or when operators ask.
    pub on_demand: Option<OnDemandOptions>,
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
    /// What the engine accepts and refuses when it loads models.
    pub load_policy: LoadPolicy,
}

/// How models are loaded on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDemandOptions {
    /// The memory that all models together may have, in bytes.
    pub memory_budget: u64,
    /// The longest time that a request waits for a model (`--model-load-wait-secs`).
    pub load_wait: Duration,
}

/// Which models must be ready so that the server is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadinessRule {
    /// None (`--strict-readiness=false`).
    NoModel,
    /// All models that the server knows.
    #[default]
    AllModels,
    /// The models that were asked for at the start, until a client unloads them (`--strict-readiness-scope=startup`).
    StartupModels,
}

/// A control mode (`--model-control-mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControlMode {
    /// `none`
    #[default]
    None,
    /// `poll`
    Poll,
    /// `explicit`
    Explicit,
}

/// Which models are loaded, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ModelControl {
    /// All models, once, at the start.
    #[default]
    None,
    /// The models of a repository as it is, also when it changes.
    Poll(Polling),
    /// The models of the start, and those that clients load and unload.
    Explicit(StartupModels),
}

/// The models that are loaded at the start in control mode `explicit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupModels {
    /// All models of the repositories (`--load-model=*`).
    All,
    /// These models.
    Named(BTreeSet<String>),
}

impl ModelControl {
    /// A mode with what belongs to it: when to look for changes, and the names of the models of the start. The name `*`
    /// stands for all models.
    ///
    /// # Errors
    /// INVALID_ARG for `*` beside other names.
    pub fn new(mode: ControlMode, polling: Polling, startup: BTreeSet<String>) -> Result<Self, Error> {
        match mode {
            ControlMode::None => Ok(Self::None),
            ControlMode::Poll => Ok(Self::Poll(polling)),
            ControlMode::Explicit if !startup.contains("*") => {
                Ok(Self::Explicit(StartupModels::Named(startup)))
            }
            ControlMode::Explicit if startup.len() == 1 => Ok(Self::Explicit(StartupModels::All)),
            ControlMode::Explicit => Err(Error::invalid(
                "Wildcard model name '*' must be the ONLY startup model if specified at all.",
            )),
        }
    }
}

impl ModelControl {
    /// The models of the start, if the options name them.
    pub(crate) fn startup_names(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Explicit(StartupModels::Named(names)) => Some(names),
            Self::None | Self::Poll(_) | Self::Explicit(StartupModels::All) => None,
        }
    }
}

/// When the repositories are looked at for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// The interval between two looks; zero means none after the start. Otherwise notifications of the file system cause
    /// looks, too.
    pub period: Duration,
    /// How long a change must have been the same before it counts.
    pub settle: Duration,
}

/// What the engine accepts and refuses when it loads models. The default is Triton's behaviour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadPolicy {
    /// If some versions of a model fail to load, the engine serves the others (`--serve-partial-models`). Otherwise it
    /// serves none of them.
    pub partial_models: bool,
    /// Instances of groups that ask for GPUs run on the CPU (`--gpu-instances-on-cpu`). Otherwise the engine refuses a
    /// model with such groups.
    pub gpu_groups_on_cpu: bool,
    /// The engine refuses loads that bring a configuration or files (`--allow-load-overrides=false`), whoever asks for
    /// them: a client, a plug-in or a model.
    pub refuse_overrides: bool,
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

/// Which families of metrics are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOptions {
    /// `counter_latencies`: the cumulative duration counters, including those of the cache.
    pub counter_latencies: bool,
    /// `summary_latencies`: quantiles of the durations of the last minute.
    pub summary_latencies: bool,
    /// `histogram_latencies`: the time to the first response.
    pub histogram_latencies: bool,
    /// `summary_quantiles`: the quantiles of summaries, from 0 to 1.
    pub quantiles: Vec<f64>,
    /// `model_histograms`: the distributions that only Nereid has.
    pub model_histograms: bool,
    /// `--allow-cpu-metrics`: processors and memory of the host.
    pub host: bool,
    /// `--metrics-interval-ms`: values of the host are measured again after half of this time, as in Triton.
    pub interval: Duration,
}

/// The defaults of the command line.
impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            counter_latencies: true,
            summary_latencies: false,
            histogram_latencies: false,
            quantiles: vec![0.5, 0.9, 0.95, 0.99, 0.999],
            model_histograms: true,
            host: true,
            interval: Duration::from_secs(2),
        }
    }
}

impl MetricsOptions {
    /// Nothing beyond what the statistics count.
    pub fn none() -> Self {
        Self { counter_latencies: false, model_histograms: false, host: false, ..Self::default() }
    }

    /// Reads a quantile of `summary_quantiles`: `0.99:0.001`, the quantile and the error that Triton may make. `None` if
    /// one of them is not from 0 to 1. The error has no other effect: quantiles are within 0.4 % of their values.
    pub fn quantile(text: &str) -> Option<f64> {
        let (quantile, error) = text.split_once(':')?;
        let read = |text: &str| text.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value));
        read(error)?;
        read(quantile)
    }
}
