//! Loads a model version from the model's directory.
//!
//! First the loader makes a plan: it reads the configuration, lets the agents in it replace the files, and chooses the
//! versions. Then, for each version, it opens the backend's model, completes and validates the configuration, reads the
//! labels, and builds the instances. Both steps run on threads that may block.
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use config::{
    Completion, CompletionContext, ConfigErrors, InstanceGroup, InstanceKind, ModelConfig, ResolvedConfig,
    Scheduling, finish, misspelt_names, unused_cache,
};
use executor::{EngineThreads, Limiter};
use host::{HostPolicy, InstancePlan, ProcessorBinding, ThreadGroup, now, usable_processors};
use inference::{
    BackendSetting, Inferer, MemoryFunctions, Plugins, UnreadBudget,
    backend::{Backend, BackendModel, InstanceDevice, InstanceSpec, ModelSource},
    cache::ResponseCache,
};
use repository::{config_file::ConfigFileReader, files, strategy};
use scheduling::Capacity;
use tokio::runtime::Handle;
use vocabulary::{ByteBudget, Error, Name, log_target::MULTILINE};

use super::plan::{LoadBase, LoadPlan};
use crate::{
    ensemble::EnsembleParts,
    fingerprint::{FilesHash, Fingerprint},
    models::loaded_version::{LoadedVersion, UpdateParts, VersionParts},
    options::{EngineOptions, LoadPolicy, RateLimitResource},
    response_cache::{ModelCache, ModelCacheParts, cache_for_model},
    server_parts::ServerParts,
};

mod planning;

/// Loads models, and holds what loading needs.
pub(crate) struct VersionLoader {
    plugins: Plugins,
    settings: Vec<BackendSetting>,
    configs: ConfigFileReader,
    agent_directory: PathBuf,
    retries: usize,
    hold_until_queued: usize,
    hold_until_backlogged: usize,
    /// The rate limiter, if the operator has enabled it.
    limiter: Option<Arc<Limiter>>,
    server: Arc<ServerParts>,
    /// Bytes that the requests of an ensemble may hold between its steps.
    intermediate_bytes: usize,
    host_policies: BTreeMap<String, HostPolicy>,
    policy: LoadPolicy,
}

/// What a load has built.
pub(super) enum LoadedModel {
    /// A model that can serve.
    Whole(Arc<LoadedVersion>),
    /// An ensemble that is not bound to its members yet.
    Ensemble(Box<EnsembleParts>),
}

/// A copy of a version while it is being built.
enum OpenedVersion<'a> {
    /// The backend has opened the version.
    Opened(Box<dyn BackendModel>),
    /// The copy differs from this one in its instances only.
    Updates(&'a Arc<LoadedVersion>),
}

impl OpenedVersion<'_> {
    /// The declared configuration with what the backend adds, and how many rows a request may have if those are more than
    /// `max_batch_size`.
    fn completed(
        &self,
        plan: &LoadPlan,
        completion: Completion,
    ) -> Result<(proto::ModelConfig, Option<NonZeroU32>), Error> {
        let opened = match self {
            Self::Opened(opened) => opened,
            Self::Updates(base) => {
                return Ok((base.model().shown().clone(), base.model().config().max_request_rows));
            }
        };
        let mut completed = plan.declared.to_be_completed();
        let request_rows = match completion {
            Completion::Auto => opened.complete_config(&mut completed)?,
            Completion::Strict => None,
        };
        Ok((completed, request_rows))
    }

    /// Whether the backend's library has changed since it was opened.
    fn is_outdated(&self) -> bool {
        match self {
            Self::Opened(opened) => opened.is_outdated(),
            Self::Updates(base) => base.work().is_outdated(),
        }
    }
}

impl VersionLoader {
    pub(crate) fn new(
        options: EngineOptions,
        plugins: Plugins,
        inflight: Arc<ByteBudget>,
        threads: EngineThreads,
        stop_announced: Arc<AtomicBool>,
    ) -> Self {
        let EngineOptions { backend_settings, auto_complete, config_name, load_retries, rate_limit, .. } =
            options;
        let capacity =
            |RateLimitResource { name, count, device }: RateLimitResource| Capacity { name, count, device };
        let limiter = |resources: Vec<RateLimitResource>| {
            Arc::new(Limiter::new(resources.into_iter().map(capacity).collect()))
        };
        Self {
            plugins,
            settings: backend_settings,
            configs: ConfigFileReader::new(auto_complete, config_name),
            agent_directory: options.agent_directory,
            retries: load_retries,
            hold_until_queued: options.hold_until_queued,
            hold_until_backlogged: options.hold_until_backlogged,
            limiter: rate_limit.map(limiter),
            server: Arc::new(ServerParts {
                threads,
                inflight,
                unread: UnreadBudget::new(options.limits.unread_response_bytes),
                inferer: None,
                stop_announced,
                faults: Arc::default(),
                metrics: Arc::new(options.metrics),
                runtime: Handle::current(),
            }),
            intermediate_bytes: options.limits.intermediate_bytes,
            host_policies: options.host_policies,
            policy: options.load_policy,
        }
    }

    /// Lets models send requests to each other.
    pub(super) fn with_inferer(self, inferer: Arc<dyn Inferer>) -> Self {
        let server = ServerParts { inferer: Some(inferer), ..(*self.server).clone() };
        Self { server: Arc::new(server), ..self }
    }

    pub(super) fn threads(&self) -> &ThreadGroup {
        &self.server.threads.group
    }

    /// The budget for the responses that clients have not read.
    pub(crate) fn unread(&self) -> &Arc<UnreadBudget> {
        &self.server.unread
    }

    /// Counts the executors whose backends have panicked.
    pub(super) fn faults(&self) -> &Arc<AtomicUsize> {
        &self.server.faults
    }

    /// How freed memory goes back to the system, if the engine was told.
    pub(super) fn memory(&self) -> Option<MemoryFunctions> {
        self.plugins.memory
    }

    /// Reads the configurations of models.
    pub(super) fn configs(&self) -> &ConfigFileReader {
        &self.configs
    }

    pub(super) fn policy(&self) -> LoadPolicy {
        self.policy
    }

    /// Loads one version from the model's directory, with as many attempts as the options allow. If there is a `base`,
    /// of which the plan is an update, the new copy has the same executor. Blocks.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) fn load(
        &self,
        plan: &LoadPlan,
        version: i64,
        directory: &Path,
        base: Option<&LoadBase>,
    ) -> Result<LoadedModel, Error> {
        if plan.is_ensemble() {
            return self.load_ensemble(plan, version, directory);
        }
        let mut failed = 0;
        loop {
            match self.load_once(plan, version, directory, base) {
                Err(error) if failed < self.retries => {
                    failed += 1;
                    log::warn!("attempt {failed} to load '{}' version {version} failed: {error}", plan.name);
                }
                result => return result.map(LoadedModel::Whole),
            }
        }
    }

    /// Reads one version of an ensemble. Blocks.
    fn load_ensemble(&self, plan: &LoadPlan, version: i64, directory: &Path) -> Result<LoadedModel, Error> {
        let since = now();
        let files = self.read_files(plan, version, directory);
        let completed = plan.declared.to_be_completed();
        let config = self.resolve(plan, directory, completed, &CompletionContext::default())?;
        let Scheduling::Ensemble(scheduling) = &config.typed.scheduling else {
            return Err(Error::internal("an ensemble has steps"));
        };
        Ok(LoadedModel::Ensemble(Box::new(EnsembleParts {
            namespace: plan.namespace.clone(),
            version,
            scheduling: scheduling.clone(),
            cache: self.cache_for(&config.typed)?,
            fingerprint: files.map(|files| files.with(&config.shown, &BTreeMap::new())),
            config,
            intermediate_bytes: self.intermediate_bytes,
            since,
            server: self.server.clone(),
        })))
    }

    fn load_once(
        &self,
        plan: &LoadPlan,
        version: i64,
        directory: &Path,
        base: Option<&LoadBase>,
    ) -> Result<Arc<LoadedVersion>, Error> {
        let since = now();
        let declared = &plan.declared.config;
        let mut source = self.source(plan, version, directory);
        let files = self.read_files(plan, version, directory);
        let backend = self.backend(&source)?;
        source.settings = self.settings_of(backend.settings_name());
        let mut environment = CompletionContext {
            preferred_groups: backend.preferred_groups(),
            gpu_groups_on_cpu: self.policy.gpu_groups_on_cpu,
            ..CompletionContext::default()
        };
        let checked = plan.declared.check_instance_groups(&environment);
        checked.map_err(|errors| report(&plan.name, errors))?;
        source.declared = Arc::new(plan.declared.config_for_backend(&environment));
        for useless in misspelt_names(declared, backend.known_names()) {
            log::warn!("{}", useless.text);
        }
        let begun = match base {
            Some(base) => OpenedVersion::Updates(&base.loaded),
            None => OpenedVersion::Opened(backend.open(&source)?),
        };
        let (completed, request_rows) = begun.completed(plan, self.configs.completion())?;
        environment.request_rows = request_rows;
        let config = self.resolve(plan, directory, completed, &environment)?;
        let is_outdated = || begun.is_outdated();
        let files = files.map(|files| files.with_library_of(&*backend, is_outdated));
        let fingerprint = files.map(|files| files.with(&config.shown, &source.settings));
        let cached = self.cached(&config.typed, version, fingerprint)?;
        let warmup_files = files::of_warmups(directory);
        let instances = self.instances(&config.typed);
        let opened = match begun {
            OpenedVersion::Opened(opened) => opened,
            OpenedVersion::Updates(base) => {
                log::info!("updating the instances of '{}' version {version}", plan.name);
                return base.with_instances(UpdateParts {
                    config,
                    warmup_files,
                    instances,
                    cached,
                    fingerprint,
                });
            }
        };
        opened.configured(&config.shown);
        let strategy = strategy::open(self.plugins.strategies.as_deref(), &*backend, &source, &config)?;
        LoadedVersion::start(VersionParts {
            namespace: plan.namespace.clone(),
            version,
            config,
            warmup_files,
            backend: opened,
            instances,
            strategy,
            limiter: self.limiter.clone(),
            cached,
            fingerprint,
            since,
            server: self.server.clone(),
        })
    }

    /// The use of the response cache by a version with this fingerprint, if it uses the cache.
    fn cached(
        &self,
        config: &ModelConfig,
        version: i64,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Option<Arc<ModelCache>>, Error> {
        let cached = self.cache_for(config)?.zip(fingerprint).zip(config.response_cache);
        Ok(cached.map(|((cache, fingerprint), caching)| {
            ModelCache::new(ModelCacheParts {
                cache,
                config: Arc::new(config.clone()),
                version,
                fingerprint,
                caching,
                server: self.server.clone(),
            })
        }))
    }

    /// Reads the files of a version if the response cache must know them: if the version uses it, or if an ensemble with
    /// this member may find answers that other servers have stored.
    fn read_files(&self, plan: &LoadPlan, version: i64, directory: &Path) -> Option<FilesHash> {
        let caching = plan.declared.config.response_cache.as_ref();
        let is_needed = caching.is_some_and(|cache| cache.enable)
            || self.plugins.cache.as_ref().is_some_and(|cache| cache.outlives_server());
        is_needed.then(|| FilesHash::read(directory, version))
    }

    /// What a backend gets to open a version.
    fn source(&self, plan: &LoadPlan, version: i64, directory: &Path) -> ModelSource {
        let settings = |(name, policy): (&String, &HostPolicy)| (name.clone(), policy.settings());
        ModelSource {
            name: plan.name.clone(),
            version,
            model_directory: directory.to_path_buf(),
            version_directory: directory.join(version.to_string()),
            declared: Arc::new(plan.declared.config.clone()),
            settings: BTreeMap::new(),
            inferer: self.server.inferer.clone(),
            host_policies: Arc::new(self.host_policies.iter().map(settings).collect()),
        }
    }

    /// The configuration that the server uses, from what the backend has completed, with the small files that it names.
    fn resolve(
        &self,
        plan: &LoadPlan,
        directory: &Path,
        completed: proto::ModelConfig,
        environment: &CompletionContext,
    ) -> Result<ResolvedConfig, Error> {
        let config = finish(&plan.declared, completed, environment);
        let mut config = config.map_err(|errors| report(&plan.name, errors))?;
        files::read(&mut config.typed, directory)?;
        match &mut config.typed.scheduling {
            Scheduling::Dynamic(dynamic) => {
                dynamic.hold_until_queued = self.hold_until_queued;
                // The text is Triton's, because scripts search for it. In Nereid the batcher has no thread of its own.
                log::debug!("Starting dynamic-batcher thread for {} at nice 0...", plan.name);
            }
            Scheduling::Sequence(sequence) => {
                sequence.batching.hold_until_queued = self.hold_until_queued;
                sequence.batching.hold_until_backlogged = self.hold_until_backlogged;
            }
            Scheduling::Unbatched | Scheduling::Ensemble(_) => {}
        }
        config.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        // The text is Triton's, because scripts search for it.
        log::debug!(
            target: MULTILINE,
            "Server side auto-completed config: \n{}",
            proto::text::write(&config.shown, |_| None)
        );
        Ok(config)
    }

    /// The server's response cache, for a model that enables it.
    fn cache_for(&self, config: &ModelConfig) -> Result<Option<Arc<dyn ResponseCache>>, Error> {
        let Some(caching) = &config.response_cache else { return Ok(None) };
        let Some(cache) = &self.plugins.cache else {
            log::warn!("{}", unused_cache(&config.name));
            return Ok(None);
        };
        cache_for_model(cache, &config.name, caching).map(Some)
    }

    /// The backend of a model: from a library in the model's directory, built in, or from a library of the backend's
    /// name.
    fn backend(&self, source: &ModelSource) -> Result<Arc<dyn Backend>, Error> {
        let name = &source.declared.backend;
        let settings = |backend: &str| self.settings_of(backend);
        let finder = self.plugins.finder.as_ref();
        if let Some(finder) = finder
            && let Some(brought) = finder.brought_by(source, &settings)?
        {
            return Ok(brought);
        }
        for backend in &self.plugins.backends {
            if backend.runs(source, &settings)? {
                return Ok(backend.clone());
            }
        }
        let is_built_in = self.plugins.backends.iter().any(|backend| backend.name() == name);
        let runtime = &source.declared.runtime;
        match finder {
            Some(finder) => finder.find(source, &settings),
            None if is_built_in => Err(Error::invalid(format!(
                "unable to find backend library '{runtime}' for model '{}', searched: ",
                source.name
            ))),
            None => Err(Error::invalid(format!(
                "unable to find backend library for backend '{name}', try specifying runtime on the model configuration."
            ))),
        }
    }

    /// One instance for each count of each group. Each computes on its share of the processors.
    fn instances(&self, config: &ModelConfig) -> Vec<InstancePlan> {
        let working = config.instance_groups.iter().filter(|group| !group.passive);
        let all: usize = working.map(|group| group.count.get()).sum();
        let share = NonZeroUsize::new(usable_processors().get() / all.max(1)).unwrap_or(NonZeroUsize::MIN);
        let of_group = |group: &InstanceGroup| {
            let device = match group.kind {
                InstanceKind::Cpu => InstanceDevice::Cpu,
                InstanceKind::Model => InstanceDevice::Model,
            };
            let spec = |index| InstanceSpec {
                name: format!("{}_{index}", group.name).into(),
                device,
                threads: share,
                passive: group.passive,
            };
            let policy = ProcessorBinding::of(&group.host_policy, &self.host_policies);
            let name = Name::default();
            let neutral = Arc::new(InstanceGroup { name, count: NonZeroUsize::MIN, ..group.clone() });
            let placed =
                |index| InstancePlan { spec: spec(index), policy: policy.clone(), group: neutral.clone() };
            (0..group.count.get()).map(placed).collect::<Vec<_>>()
        };
        config.instance_groups.iter().flat_map(of_group).collect()
    }

    /// The settings for all backends, overridden by those for this backend.
    fn settings_of(&self, backend: &str) -> BTreeMap<String, String> {
        let of = |wanted: Option<&str>| {
            let settings = self.settings.iter().filter(move |setting| setting.backend.as_deref() == wanted);
            settings.map(|setting| (setting.key.clone(), setting.value.clone())).collect::<Vec<_>>()
        };
        of(None).into_iter().chain(of(Some(backend))).collect()
    }
}

/// Logs each problem with its place, and returns the one error that becomes the model's reason.
fn report(name: &Name, errors: ConfigErrors) -> Error {
    if errors.problems().len() > 1 || errors.problems().iter().any(|problem| problem.line.is_some()) {
        log::error!(
            target: MULTILINE,
            "the configuration of model '{name}' has problems:\n{}",
            errors.report()
        );
    }
    errors.into()
}
