//! A model version that has been built and has not ended: the model that clients see, and what does its work.
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use config::ResolvedConfig;
use executor::{Executor, ExecutorParts, ExecutorUpdateParts, Limiter, PreparedUpdate};
use host::{InstancePlan, now};
use inference::{
    ModelRunner, ReadableMemory, RequestValidator, Timestamp, WarmupFiles, backend::BackendModel,
    batching::BatchingStrategy, lock::Mutex,
};
use vocabulary::{Error, Name};

use super::loaded_work::LoadedWork;
use crate::{
    account::{Latencies, ModelStatistics, OpenRequests, RequestAccount, RequestCounters},
    ensemble::{EnsembleMember, EnsembleParts, EnsembleVersion},
    fingerprint::Fingerprint,
    model::{Model, ModelParts},
    response_cache::ModelCache,
    server_parts::ServerParts,
};

mod ending;

/// See the module documentation.
///
/// If only the instances of a version change, nothing else is built anew: queue, sequences, statistics and the instances
/// that remain stay. The new version takes the executor over when it comes into service.
pub(crate) struct LoadedVersion {
    model: Arc<Model>,
    work: LoadedWork,
    load_duration: Duration,
    /// Another version closes the executor.
    is_foreign: AtomicBool,
    /// The instances of this version, before it comes into service.
    update: Mutex<Option<PreparedUpdate>>,
    /// The requests of the versions that had the executor before and may not have ended.
    earlier: Vec<Arc<OpenRequests>>,
}

/// What a version with a backend is built from.
pub(crate) struct VersionParts {
    /// The repository, if the server uses namespaces.
    pub(crate) namespace: Option<Name>,
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    /// The files of the samples for warm-up.
    pub(crate) warmup_files: WarmupFiles,
    pub(crate) backend: Box<dyn BackendModel>,
    pub(crate) instances: Vec<InstancePlan>,
    /// The custom batching strategy of the model, if it has one. It decides which requests may share a batch.
    pub(crate) strategy: Option<Box<dyn BatchingStrategy>>,
    /// The rate limiter, if the server has one.
    pub(crate) limiter: Option<Arc<Limiter>>,
    pub(crate) cached: Option<Arc<ModelCache>>,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// When the load began.
    pub(crate) since: Timestamp,
    pub(crate) server: Arc<ServerParts>,
}

/// What differs between two versions that use the same executor.
pub(crate) struct UpdateParts {
    pub(crate) config: ResolvedConfig,
    /// The files of the samples for warm-up.
    pub(crate) warmup_files: WarmupFiles,
    pub(crate) instances: Vec<InstancePlan>,
    pub(crate) cached: Option<Arc<ModelCache>>,
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl LoadedVersion {
    /// Builds all instances. The version can be used when this returns. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn start(parts: VersionParts) -> Result<Arc<Self>, Error> {
        let VersionParts { namespace, version, config, cached, fingerprint, since, server, .. } = parts;
        let VersionParts { warmup_files, backend, instances, strategy, limiter, .. } = parts;
        let ResolvedConfig { typed, shown, .. } = config;
        let config = Arc::new(typed);
        let readable = ReadableMemory {
            device: backend.reads_device_memory(),
            foreign: backend.copies_foreign_memory(),
        };
        let validator = Arc::new(RequestValidator::new(&config, readable));
        let record = Arc::new(RequestCounters::new(Latencies::new(&server.metrics, &config, since)));
        let executor = Executor::start(ExecutorParts {
            version,
            config: config.clone(),
            validator: validator.clone(),
            counters: record.counters().clone(),
            warmup_files,
            backend,
            instances,
            strategy,
            threads: server.threads.clone(),
            limiter,
            faults: server.faults.clone(),
        })?;
        let model = Model::new(ModelParts {
            namespace,
            version,
            config,
            shown,
            validator,
            account: Arc::new(RequestAccount::new(record, executor.clone())),
            cached,
            fingerprint,
            server,
        });
        Ok(Arc::new(Self::new(model, LoadedWork::Executor(executor), now() - since)))
    }

    /// An ensemble with its members, one for each step.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit.
    pub(crate) fn of_ensemble(parts: EnsembleParts, members: &[Arc<Self>]) -> Result<Arc<Self>, Error> {
        let since = parts.since;
        let (version, model) = EnsembleVersion::new(parts, Self::as_members(members))?;
        Ok(Arc::new(Self::new(model, LoadedWork::Ensemble(Arc::new(version)), now() - since)))
    }

    fn new(model: Model, work: LoadedWork, load_duration: Duration) -> Self {
        Self {
            model: Arc::new(model),
            work,
            load_duration,
            is_foreign: AtomicBool::new(false),
            update: Mutex::default(),
            earlier: Vec::new(),
        }
    }

    fn as_members(members: &[Arc<Self>]) -> Vec<EnsembleMember> {
        let member = |loaded: &Arc<Self>| EnsembleMember {
            model: loaded.model.clone(),
            nested: loaded.work.ensemble().map(|version| version.ensemble().members().clone()),
        };
        members.iter().map(member).collect()
    }

    /// Binds an ensemble to other members. The new version replaces this one. `None` if nothing changes.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit. Then nothing changes.
    pub(crate) fn bound_to(&self, members: &[Arc<Self>]) -> Result<Option<Arc<Self>>, Error> {
        let Some(version) = self.work.ensemble() else { return Ok(None) };
        let Some(model) = version.bind(Self::as_members(members))? else { return Ok(None) };
        model.succession().adopt_predecessors(self.model.succession());
        let work = LoadedWork::Ensemble(version.clone());
        Ok(Some(Arc::new(Self::new(model, work, self.load_duration))))
    }

    /// A version with other instances. Builds those that are missing; this version goes on as it is. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn with_instances(&self, parts: UpdateParts) -> Result<Arc<Self>, Error> {
        let UpdateParts { config: ResolvedConfig { typed, shown, .. }, warmup_files, instances, .. } = parts;
        let config = Arc::new(typed);
        let executor = self.work.executor().ok_or_else(|| Error::internal("an ensemble has no instances"))?;
        let update =
            executor.prepare(ExecutorUpdateParts { config: config.clone(), warmup_files, instances })?;
        let earlier = self.earlier.iter().filter(|open| !open.have_ended()).cloned();
        let model = self.model.with_config(config, shown, parts.cached, parts.fingerprint);
        Ok(Arc::new(Self {
            model: Arc::new(model),
            work: LoadedWork::Executor(executor.clone()),
            load_duration: self.load_duration,
            is_foreign: AtomicBool::new(true),
            update: Mutex::new(Some(update)),
            earlier: earlier.chain([self.open().clone()]).collect(),
        }))
    }

    /// If this version was made from `old`, which it replaces now, it takes the executor over, and the instances change.
    /// Returns whether it was.
    pub(crate) fn take_over(&self, old: &Self) -> bool {
        let (Some(executor), Some(earlier)) = (self.work.executor(), old.work.executor()) else {
            return false;
        };
        if !Arc::ptr_eq(executor, earlier) {
            return false;
        }
        // Not in the condition of the `if`, which would hold the lock to its end.
        let update = self.update.lock().take();
        if let Some(update) = update {
            self.model.succession().adopt_predecessors(old.model.succession());
            old.is_foreign.store(true, SeqCst);
            self.is_foreign.store(false, SeqCst);
            executor.update(update, self.model.shown());
        }
        true
    }

    /// Lets requests of the sequences that `old` has go there from now on. Called before this version serves.
    pub(crate) fn follow(&self, old: &Self) {
        if old.model.takes_sequences() {
            self.model.succession().follow(&old.model, old.model.succession());
        }
    }

    fn owns_executor(&self) -> bool {
        !self.is_foreign.load(SeqCst)
    }

    /// What clients see.
    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What does its work.
    pub(crate) fn work(&self) -> &LoadedWork {
        &self.work
    }

    fn runner(&self) -> Arc<dyn ModelRunner> {
        self.model.account().runner().clone()
    }

    fn open(&self) -> &Arc<OpenRequests> {
        self.model.account().open()
    }
}

/// What is known of the version now.
impl LoadedVersion {
    /// The counters of the requests.
    pub(crate) fn record(&self) -> &RequestCounters {
        self.model.account().record()
    }

    /// The reason why the version cannot be used any more, if there is one.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.model.account().runner().fault()
    }

    /// How long the load took.
    pub(crate) fn load_duration(&self) -> Duration {
        self.load_duration
    }

    /// The number of sequences of several requests that may still get requests.
    pub(crate) fn live_sequences(&self) -> usize {
        if self.model.takes_sequences() { self.model.account().runner().live_sequences() } else { 0 }
    }

    /// The number of accepted requests whose last response has not been sent.
    pub(crate) fn in_flight(&self) -> usize {
        self.open().count()
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        ModelStatistics {
            responses: self.record().responses(),
            memory_usage: self.work.memory_usage(),
            ..self.record().read(self.model.name(), self.model.version())
        }
    }

    /// Whether a new version may use what the backend has opened for this one. May block.
    pub(crate) fn is_sound(&self) -> bool {
        self.fault().is_none() && !self.work.is_outdated()
    }
}

impl fmt::Debug for LoadedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.model.fmt(f)
    }
}

#[cfg(test)]
mod cancellation_tests;
#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
pub(crate) mod tests;
