//! `TRITONSERVER_ServerOptions`: the options of a server.
//!
//! An option of a feature which Nereid does not have is accepted without effect. Builds of Triton without the feature do
//! the same.
mod devices;
mod general;
mod log;
mod log_callback;
mod metrics;
mod plugins;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    ptr,
    time::Duration,
};

use assembly::logging;
use c_api::{
    handle::{Handle, borrow, delete, give, guard},
    types::error::CError,
};
use engine::{
    ControlMode, LoadPolicy, MetricsOptions, ModelControl, Polling, RateLimitResource, ReadinessRule,
    ServerMetadata,
};
use host::HostPolicy;
use inference::{
    BackendSetting,
    lock::{Mutex, MutexGuard},
};
use vocabulary::Error;

use crate::{EXTENSIONS, TRITON_VERSION};

pub use self::{devices::*, general::*, log::*, metrics::*, plugins::*};

/// `TRITONSERVER_ServerOptions`.
#[derive(Debug, Default)]
pub struct ServerOptions {
    settings: Mutex<OptionSettings>,
}

impl Handle for ServerOptions {
    const NAME: &'static str = "TRITONSERVER_ServerOptions";
}

impl ServerOptions {
    pub(crate) fn settings(&self) -> MutexGuard<'_, OptionSettings> {
        self.settings.lock()
    }
}

/// The values that have been set.
#[derive(Debug, Clone)]
pub(crate) struct OptionSettings {
    pub(crate) exit_on_error: bool,
    pub(crate) exit_timeout_secs: u32,
    pub(crate) metrics: bool,
    id: String,
    repositories: BTreeSet<String>,
    control_mode: ControlMode,
    /// The models of the start, if the program loads models.
    startup_models: BTreeSet<String>,
    namespacing: bool,
    auto_complete: bool,
    config_name: Option<String>,
    strict_readiness: bool,
    load_threads: u32,
    load_retries: u32,
    rate_limit: bool,
    /// Units of a resource by device, `None` for each device.
    resources: BTreeMap<(Option<u32>, String), u32>,
    shown_metrics: MetricsOptions,
    min_compute_capability: f64,
    backend_directory: String,
    pub(crate) agent_directory: String,
    pub(crate) cache_directory: String,
    /// Caches by name, with their settings. A server has at most one.
    pub(crate) caches: BTreeMap<String, BTreeMap<String, String>>,
    backend_settings: Vec<BackendSetting>,
    host_policies: BTreeMap<String, HostPolicy>,
}

/// The defaults of Triton.
impl Default for OptionSettings {
    fn default() -> Self {
        Self {
            exit_on_error: true,
            exit_timeout_secs: 30,
            metrics: true,
            id: "triton".to_owned(),
            repositories: BTreeSet::new(),
            control_mode: ControlMode::Poll,
            startup_models: BTreeSet::new(),
            namespacing: false,
            auto_complete: false,
            config_name: None,
            strict_readiness: true,
            load_threads: 4,
            load_retries: 0,
            rate_limit: false,
            resources: BTreeMap::new(),
            shown_metrics: MetricsOptions::default(),
            min_compute_capability: 0.0,
            backend_directory: "/opt/tritonserver/backends".to_owned(),
            agent_directory: "/opt/tritonserver/repoagents".to_owned(),
            cache_directory: "/opt/tritonserver/caches".to_owned(),
            caches: BTreeMap::new(),
            backend_settings: Vec::new(),
            host_policies: BTreeMap::new(),
        }
    }
}

impl OptionSettings {
    /// # Errors
    /// INVALID_ARG for values that no server can start with.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.repositories.is_empty() {
            return Err(Error::invalid("--model-repository must be specified"));
        }
        if self.agent_directory.is_empty() {
            return Err(Error::invalid("--repoagent-directory can not be empty"));
        }
        if self.caches.len() > 1 {
            return Err(Error::invalid(
                "found multiple cache configurations, but only a single cache is currently supported",
            ));
        }
        Ok(())
    }

    /// The settings that the program has set for backends: the backend, the name and the value.
    pub(crate) fn backend_settings(&self) -> impl Iterator<Item = (Option<&str>, &str, &str)> {
        let settings = self.backend_settings.iter();
        settings.map(|setting| (setting.backend.as_deref(), setting.key.as_str(), setting.value.as_str()))
    }

    /// The settings of backends as the engine takes them.
    ///
    /// # Errors
    /// INVALID_ARG for models of the start that contradict each other.
    pub(crate) fn engine_options(&self) -> Result<engine::EngineOptions, Error> {
        let own = [
            ("auto-complete-config", self.auto_complete.to_string()),
            ("min-compute-capability", format!("{:.6}", self.min_compute_capability)),
            ("backend-directory", self.backend_directory.clone()),
        ];
        let own = own.map(|(key, value)| BackendSetting { backend: None, key: key.to_owned(), value });
        let resources = self.resources.iter().map(|((device, name), count)| RateLimitResource {
            name: name.clone(),
            count: *count,
            device: *device,
        });
        // The program says when to look for changes, and waits for what follows.
        let polling = Polling { period: Duration::ZERO, settle: Duration::ZERO };
        let control = ModelControl::new(self.control_mode, polling, self.startup_models.clone())?;
        Ok(engine::EngineOptions {
            server: ServerMetadata {
                name: self.id.clone(),
                version: TRITON_VERSION.to_owned(),
                extensions: EXTENSIONS.map(str::to_owned).to_vec(),
            },
            repositories: self.repositories.iter().map(PathBuf::from).collect(),
            readiness: if self.strict_readiness { ReadinessRule::AllModels } else { ReadinessRule::NoModel },
            load_threads: usize::try_from(self.load_threads).unwrap_or(usize::MAX).max(1),
            load_retries: usize::try_from(self.load_retries).unwrap_or(usize::MAX),
            auto_complete: self.auto_complete,
            config_name: self.config_name.clone(),
            // As Triton: the program's settings come first, so that they cannot override these.
            backend_settings: self.backend_settings.iter().cloned().chain(own).collect(),
            on_demand: None,
            limits: host::MemoryLimits::default(),
            metrics: if self.metrics { self.shown_metrics.clone() } else { MetricsOptions::none() },
            hold_until_queued: 0,
            hold_until_backlogged: 0,
            rate_limit: self.rate_limit.then(|| resources.collect()),
            host_policies: self.host_policies.clone(),
            agent_directory: self.agent_directory.clone().into(),
            load_policy: LoadPolicy::default(),
            control,
            namespacing: self.namespacing,
            sequence_limit: Duration::from_secs(60),
        })
    }
}

/// Changes the options.
///
/// # Safety
/// The options are null or live.
unsafe fn set(
    options: *mut ServerOptions,
    change: impl FnOnce(&mut OptionSettings) -> Result<(), Error>,
) -> *mut CError {
    // SAFETY: as the caller promises.
    guard(|| unsafe { borrow(options) }.and_then(|options| change(&mut options.settings())))
}

/// Makes options with the default values. The caller owns them. The first call in the process installs the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsNew(options: *mut *mut ServerOptions) -> *mut CError {
    guard(|| {
        // If the program has installed a logger, it stays in place.
        let _ = logging::of_process();
        // SAFETY: null or writable.
        unsafe { give(options, ServerOptions::default()) }
    })
}

/// Deletes options; null is fine. Servers that were made with them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsDelete(options: *mut ServerOptions) -> *mut CError {
    // SAFETY: null or options that the caller does not use after this.
    unsafe { delete(options) };
    ptr::null_mut()
}
