//! How an engine starts and stops. At its end it announces the end, lets accepted requests finish, and ends its models and
//! threads.
use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use executor::EngineThreads;
use futures_util::future::join_all;
use inference::Plugins;
use lifecycle::MemoryBudget;
use repository::LoadParameters;
use tokio::runtime::Handle;
use vocabulary::{Error, Name};

use super::{Engine, EngineInner, model_loader::EngineModelLoader};
use crate::{
    exposition::Exposition,
    memory_pressure,
    models::{Repository, RepositoryOptions, VersionLoader, loaded_version::LoadedVersion},
    on_demand::OnDemandModels,
    options::{EngineOptions, ModelControl, OnDemandOptions, ReadinessRule, StartupModels},
    readiness::ReadinessPolicy,
};

/// How often a stopping server logs what it waits for.
const SECOND: Duration = Duration::from_secs(1);

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
        let on_demand = options.on_demand;
        let rule = match options.readiness {
            // Models that come and go do not count.
            ReadinessRule::AllModels if on_demand.is_some() => ReadinessRule::StartupModels,
            rule => rule,
        };
        let readiness = ReadinessPolicy::new(rule, control.startup_names());
        let load_threads = NonZeroUsize::new(options.load_threads).unwrap_or(NonZeroUsize::MIN);
        let repository = RepositoryOptions {
            paths: options.repositories.clone(),
            opener: plugins.repositories.clone(),
            namespacing: options.namespacing,
            load_threads: load_threads.get(),
            sequence_limit: options.sequence_limit,
            takes_overrides: matches!(control, ModelControl::Explicit(_))
                && !options.load_policy.refuse_overrides,
            polling: match control {
                ModelControl::Poll(polling) => Some(polling),
                ModelControl::None | ModelControl::Explicit(_) => None,
            },
        };
        let inflight = memory_pressure::observed_budget(options.limits.inflight_bytes, plugins.memory);
        let stop_announced = Arc::<AtomicBool>::default();
        let loader =
            VersionLoader::new(options, plugins, inflight.clone(), threads.clone(), stop_announced.clone());
        let unread = loader.unread().clone();
        let repository = Arc::new(Repository::start(loader, repository)?);
        let on_demand = on_demand.map(|OnDemandOptions { memory_budget, load_wait }| {
            let budget = MemoryBudget::new(memory_budget, load_threads);
            OnDemandModels::start(budget, load_wait, &repository, (inflight.clone(), unread))
        });
        let shared = EngineInner {
            server,
            readiness,
            repository,
            on_demand,
            exposition,
            inflight,
            control,
            threads,
            failed_to_start: AtomicBool::new(false),
            lacks_startup_models: AtomicBool::new(false),
            stop_announced,
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
        let loaded = match (&self.shared.on_demand, &self.shared.control) {
            (Some(on_demand), control) => self.load_pinned(on_demand, control).await,
            (None, ModelControl::Explicit(StartupModels::Named(names))) => {
                self.load_named(names).await;
                Ok(())
            }
            (
                None,
                ModelControl::None | ModelControl::Poll(_) | ModelControl::Explicit(StartupModels::All),
            ) => {
                let loaded = self.shared.repository.load_all().await;
                let names = self.shared.repository.table().names().cloned().collect();
                self.shared.readiness.started_with(names);
                loaded
            }
        };
        self.shared.failed_to_start.store(loaded.is_err(), Ordering::Release);
        loaded
    }

    /// Loads the models that stay in memory, and those that the options name.
    async fn load_pinned(&self, on_demand: &OnDemandModels, control: &ModelControl) -> Result<(), Error> {
        on_demand.survey().await?;
        let mut names = on_demand.pinned();
        self.shared.readiness.started_with(names.iter().map(|name| Name::new(name)).collect());
        names.extend(control.startup_names().into_iter().flatten().cloned());
        self.load_named(&names).await;
        Ok(())
    }

    async fn load_named(&self, names: &BTreeSet<String>) {
        let load = async |name: &String| match &self.shared.on_demand {
            Some(on_demand) => on_demand.load(name, LoadParameters::default()).await,
            None => self.shared.repository.load(name, LoadParameters::default()).await,
        };
        let loads = names.iter().map(load);
        for (name, loaded) in names.iter().zip(join_all(loads).await) {
            if let Err(error) = loaded {
                log::error!("failed to load the startup model '{name}': {}", error.message.trim_end());
                self.shared.lacks_startup_models.store(true, Ordering::Release);
            }
        }
    }
}

impl Engine {
    /// Returns when no sequence runs. While it waits, clients may begin further ones.
    pub async fn sequences_ended(&self) {
        while self.live_sequences() > 0 {
            let models: Vec<_> = self.shared.repository.table().accepting().cloned().collect();
            join_all(models.iter().map(|model| model.sequences_ended())).await;
        }
    }

    /// Returns when each model has had a moment without requests in flight.
    pub async fn requests_ended(&self) {
        let models: Vec<_> = self.shared.repository.table().accepting().cloned().collect();
        join_all(models.iter().map(|model| model.idle())).await;
    }

    /// Whether every request that would be answered now is part of a running sequence: the stop has been announced, so that
    /// no sequence begins, and each model that is ready has sequences. False without models.
    pub fn serves_only_running_sequences(&self) -> bool {
        let models = self.shared.repository.table().ready();
        self.shared.stop_announced.load(Ordering::Acquire)
            && !models.is_empty()
            && models.iter().all(|loaded| loaded.model().takes_sequences())
    }

    /// From now on the server is not ready: it will stop soon. It is live and serves as before, but no sequence begins.
    pub fn announce_stop(&self) {
        self.shared.stop_announced.store(true, Ordering::Release);
    }

    /// From now on the engine reports that the server is exiting, refuses to change models, also for callers that wait
    /// for a load, and no request waits for others to share its batch. The engine still accepts requests: endpoints may
    /// hold some that came before.
    pub async fn announce_exit(&self) {
        self.shared.exiting.store(true, Ordering::Release);
        self.shared.on_demand.iter().for_each(OnDemandModels::stop);
        self.shared.repository.table().built().iter().for_each(|model| model.end_queue_delay());
        self.shared.repository.refuse_commands().await;
    }

    /// Announces the exit, and does not wait for loads that run: the process ends soon, and nobody needs their models.
    /// Returns whether threads are still in code of backends, or read repositories. May be called again to ask that.
    pub async fn abandon_loads(&self) -> bool {
        self.announce_exit().await;
        self.shared.repository.abandon_loads().await
    }

    /// Accepts no new requests, lets accepted requests finish, waits for loads that run, and ends all models.
    ///
    /// # Errors
    /// INTERNAL if that takes longer than `grace`. The requests and models that still run are then lost with the
    /// process.
    pub async fn stop(&self, grace: Duration) -> Result<(), Error> {
        self.announce_exit().await;
        let models = self.shared.repository.table().built();
        let all_closed = async {
            // Requests of ensembles that were accepted still need the other models.
            let (ensembles, others): (Vec<_>, Vec<_>) =
                models.iter().partition(|model| model.work().ensemble().is_some());
            ensembles.iter().for_each(|ensemble| ensemble.drain());
            join_all(ensembles.iter().map(|ensemble| ensemble.last_request_ended())).await;
            others.iter().for_each(|model| model.drain());
            self.report_in_flight(&models, grace).await;
            self.shared.repository.unload_all().await;
        };
        let expired = |_| Error::internal("Exit timeout expired. Exiting immediately.");
        tokio::time::timeout(grace, all_closed).await.map_err(expired)
    }

    /// Ends the engine's own threads after a stop, and waits until all threads that it has started have ended, at most
    /// until `deadline`. Returns whether they have. Threads of the runtime are not waited for. Blocks.
    pub fn end_threads(&self, deadline: Instant) -> bool {
        self.shared.threads.end();
        self.shared.threads.group.join(deadline)
    }

    /// Returns when no request of these models is in flight; they drain. Logs once a second what is in flight.
    async fn report_in_flight(&self, models: &[Arc<LoadedVersion>], grace: Duration) {
        if self.in_flight() > 0 {
            log::info!("Waiting for in-flight requests to complete.");
        }
        let mut all_ended = pin!(join_all(models.iter().map(|model| model.last_request_ended())));
        let mut left = grace;
        while self.in_flight() > 0 {
            let busy: Vec<_> = models.iter().filter(|model| model.in_flight() > 0).collect();
            let (seconds, versions) = (left.as_secs(), busy.len());
            log::info!("Timeout {seconds}: Found {versions} model versions that have in-flight inferences");
            for loaded in busy {
                let (model, count) = (loaded.model(), loaded.in_flight());
                let (name, version) = (model.name(), model.version());
                log::info!("Model '{name}' (version {version}) has {count} in-flight inferences");
            }
            if tokio::time::timeout(SECOND, &mut all_ended).await.is_ok() {
                break;
            }
            left = left.saturating_sub(SECOND);
        }
        log::info!("All models are stopped, unloading models");
    }
}
