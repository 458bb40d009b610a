//! A model version that has been built and has not ended: the model that clients see, and what does its work.
use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use inference::{
    Error, ModelRunner, Name, Timestamp,
    backend::{BackendModel, MemoryUsage},
    batching::BatchingStrategy,
    config::{EnsembleScheduling, ResolvedConfig},
    lock::Mutex,
};

use crate::{
    account::RequestAccount,
    check::{ReadableMemory, RequestValidator},
    clock::now,
    ensemble::{EnsembleMember, EnsembleParts, EnsembleVersion},
    executor::{Executor, ExecutorParts, ExecutorUpdateParts, ExecutorView, PreparedUpdate, WaitingWork},
    fingerprint::Fingerprint,
    host_policy::Placed,
    in_flight::InFlight,
    limiter::Limiter,
    model::{Model, ModelParts},
    observe::{Latencies, ModelStatistics, Record},
    order::Orders,
    response_cache::ModelCache,
    server_parts::ServerParts,
    snapshot::{QueueSnapshot, StepSnapshot},
};

/// See the module documentation.
///
/// If only the instances of a version change, nothing else is built anew: queue, sequences, statistics and the instances
/// that remain stay. The new version takes the executor over when it comes into service.
pub(crate) struct LoadedVersion {
    model: Arc<Model>,
    work: LoadedWork,
    /// Another version closes the executor.
    is_foreign: AtomicBool,
    /// The instances of this version, before it comes into service.
    update: Mutex<Option<PreparedUpdate>>,
    /// The requests of the versions that had the executor before and may not have ended.
    earlier: Vec<Arc<InFlight>>,
}

/// What does the work of a version. More is known of it than a model asks of its runner.
enum LoadedWork {
    /// A backend with instances.
    Executor(Arc<Executor>),
    /// Other models.
    Ensemble(Arc<EnsembleVersion>),
}

/// What a version with a backend is built from.
pub(crate) struct VersionParts {
    /// The repository, if the server uses namespaces.
    pub(crate) namespace: Option<Name>,
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    /// The model's directory.
    pub(crate) directory: PathBuf,
    pub(crate) backend: Box<dyn BackendModel>,
    pub(crate) instances: Vec<Placed>,
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
    /// The model's directory.
    pub(crate) directory: PathBuf,
    pub(crate) instances: Vec<Placed>,
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
        let VersionParts { directory, backend, instances, strategy, limiter, .. } = parts;
        let ResolvedConfig { typed, shown, .. } = config;
        let config = Arc::new(typed);
        let active = instances.iter().filter(|placed| !placed.spec.passive).count();
        let readable = ReadableMemory {
            device: backend.reads_device_memory(),
            foreign: backend.copies_foreign_memory(),
        };
        let validator = Arc::new(RequestValidator::new(&config, readable));
        let record = Arc::new(Record::new(Latencies::new(&server.metrics, &config, since)));
        let orders = Arc::new(Orders::of(&config.scheduling, active));
        let executor = Executor::start(ExecutorParts {
            version,
            config: config.clone(),
            validator: validator.clone(),
            record: record.clone(),
            orders: orders.clone(),
            directory,
            backend,
            instances,
            strategy,
            threads: server.threads.clone(),
            limiter,
        })?;
        let model = Model::new(ModelParts {
            namespace,
            version,
            config,
            shown,
            validator,
            account: Arc::new(RequestAccount::new(record, orders, executor.clone())),
            cached,
            fingerprint,
            server,
            load_duration: now() - since,
        });
        Ok(Arc::new(Self::new(model, LoadedWork::Executor(executor))))
    }

    /// An ensemble with its members, one for each step.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit.
    pub(crate) fn of_ensemble(parts: EnsembleParts, members: &[Arc<Self>]) -> Result<Arc<Self>, Error> {
        let (version, model) = EnsembleVersion::new(parts, Self::as_members(members))?;
        Ok(Arc::new(Self::new(model, LoadedWork::Ensemble(Arc::new(version)))))
    }

    fn new(model: Model, work: LoadedWork) -> Self {
        Self {
            model: Arc::new(model),
            work,
            is_foreign: AtomicBool::new(false),
            update: Mutex::default(),
            earlier: Vec::new(),
        }
    }

    fn as_members(members: &[Arc<Self>]) -> Vec<EnsembleMember> {
        let member = |loaded: &Arc<Self>| EnsembleMember {
            model: loaded.model.clone(),
            nested: loaded.ensemble().map(|version| version.ensemble().members().clone()),
        };
        members.iter().map(member).collect()
    }

    /// Binds an ensemble to other members. The new version replaces this one. `None` if nothing changes.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit. Then nothing changes.
    pub(crate) fn bound_to(&self, members: &[Arc<Self>]) -> Result<Option<Arc<Self>>, Error> {
        let Some(version) = self.ensemble() else { return Ok(None) };
        let Some(model) = version.bind(Self::as_members(members))? else { return Ok(None) };
        model.follow_as(&self.model);
        Ok(Some(Arc::new(Self::new(model, LoadedWork::Ensemble(version.clone())))))
    }

    /// A version with other instances. Builds those that are missing; this version goes on as it is. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn with_instances(&self, parts: UpdateParts) -> Result<Arc<Self>, Error> {
        let UpdateParts { config: ResolvedConfig { typed, shown, .. }, directory, instances, .. } = parts;
        let config = Arc::new(typed);
        let executor = self.executor().ok_or_else(|| Error::internal("an ensemble has no instances"))?;
        let update =
            executor.prepare(ExecutorUpdateParts { config: config.clone(), directory, instances })?;
        let earlier = self.earlier.iter().filter(|open| !open.have_ended()).cloned();
        let model = self.model.with_config(config, shown, parts.cached, parts.fingerprint);
        Ok(Arc::new(Self {
            model: Arc::new(model),
            work: LoadedWork::Executor(executor.clone()),
            is_foreign: AtomicBool::new(true),
            update: Mutex::new(Some(update)),
            earlier: earlier.chain([self.open().clone()]).collect(),
        }))
    }

    /// If this version was made from `old`, which it replaces now, it takes the executor over, and the instances change.
    /// Returns whether it was.
    pub(crate) fn take_over(&self, old: &Self) -> bool {
        let (Some(executor), Some(earlier)) = (self.executor(), old.executor()) else { return false };
        if !Arc::ptr_eq(executor, earlier) {
            return false;
        }
        // Not in the condition of the `if`, which would hold the lock to its end.
        let update = self.update.lock().take();
        if let Some(update) = update {
            self.model.follow_as(&old.model);
            old.is_foreign.store(true, SeqCst);
            self.is_foreign.store(false, SeqCst);
            executor.update(update, self.model.shown());
        }
        true
    }

    fn owns_executor(&self) -> bool {
        !self.is_foreign.load(SeqCst)
    }

    /// What clients see.
    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    fn executor(&self) -> Option<&Arc<Executor>> {
        match &self.work {
            LoadedWork::Executor(executor) => Some(executor),
            LoadedWork::Ensemble(_) => None,
        }
    }

    fn ensemble(&self) -> Option<&Arc<EnsembleVersion>> {
        match &self.work {
            LoadedWork::Executor(_) => None,
            LoadedWork::Ensemble(ensemble) => Some(ensemble),
        }
    }

    fn runner(&self) -> Arc<dyn ModelRunner> {
        self.model.account().runner().clone()
    }

    fn open(&self) -> &Arc<InFlight> {
        self.model.account().open()
    }

    /// The steps, if the model is an ensemble.
    pub(crate) fn ensemble_scheduling(&self) -> Option<&Arc<EnsembleScheduling>> {
        self.ensemble().map(|version| version.ensemble().scheduling())
    }
}

/// What is known of the version now.
impl LoadedVersion {
    /// The counters of the requests.
    pub(crate) fn record(&self) -> &Record {
        self.model.account().record()
    }

    /// The number of accepted requests whose last response has not been sent.
    pub(crate) fn in_flight(&self) -> usize {
        self.open().count()
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        ModelStatistics {
            responses: self.record().responses(),
            memory_usage: self.memory_usage(),
            ..self.record().read(self.model.name(), self.model.version())
        }
    }

    /// The memory that the model uses, as far as its backend knows.
    pub(crate) fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.executor().map(|executor| executor.memory_usage()).unwrap_or_default()
    }

    /// How often processes of the model were started again, if its backend knows.
    pub(crate) fn process_restarts(&self) -> Option<u64> {
        self.executor()?.process_restarts()
    }

    /// The work that waits. The members of an ensemble have the time.
    pub(crate) fn waiting_work(&self) -> WaitingWork {
        match &self.work {
            LoadedWork::Executor(executor) => executor.waiting_work(),
            LoadedWork::Ensemble(version) => {
                WaitingWork { requests: version.ensemble().pending(), time: None }
            }
        }
    }

    /// What waits and runs here. An ensemble has no instances of its own.
    pub(crate) fn look(&self) -> ExecutorView {
        match &self.work {
            LoadedWork::Executor(executor) => executor.look(),
            LoadedWork::Ensemble(version) => {
                let requests = version.ensemble().pending();
                ExecutorView {
                    queue: QueueSnapshot { requests, ..QueueSnapshot::default() },
                    ..ExecutorView::default()
                }
            }
        }
    }

    /// The steps of an ensemble.
    pub(crate) fn steps(&self) -> Vec<StepSnapshot> {
        self.ensemble().map(|version| version.ensemble().steps()).unwrap_or_default()
    }

    /// The server's rate limiter, if it has one and the model knows it.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.executor()?.limiter()
    }

    /// Whether a new version may use what the backend has opened for this one. May block.
    pub(crate) fn is_sound(&self) -> bool {
        self.model.fault().is_none() && !self.is_outdated()
    }

    /// Whether the files of the backend have changed since it opened the model. May block.
    pub(crate) fn is_outdated(&self) -> bool {
        self.executor().is_some_and(|executor| executor.is_outdated())
    }

    /// Whether the backend takes part in the decision that the version is ready.
    pub(crate) fn reports_readiness(&self) -> bool {
        self.executor().is_some_and(|executor| executor.reports_readiness())
    }

    /// Whether requests can be taken, as the backend reports it. A thread that may block asks the backend. Must be called in
    /// a tokio runtime.
    pub(crate) async fn ready(&self) -> bool {
        match &self.work {
            LoadedWork::Executor(executor) => executor.ready().await,
            LoadedWork::Ensemble(_) => true,
        }
    }
}

/// How the version ends.
impl LoadedVersion {
    /// From now on, no request waits for others to share its batch. The version still accepts requests.
    pub(crate) fn end_queue_delay(&self) {
        self.runner().end_queue_delay();
    }

    /// Accepts no new requests. Accepted requests continue.
    pub(crate) fn drain(&self) {
        self.model.refuse_late_requests();
        self.open().drain();
        self.runner().drain();
    }

    /// Returns when the version has drained and its last request has ended.
    pub(crate) async fn last_request_ended(&self) {
        self.open().last_ended().await;
    }

    /// Returns when no sequence of clients runs here.
    pub(crate) async fn sequences_ended(&self) {
        if self.model.has_sequences_of_clients() {
            self.runner_without_sequences().await;
        }
    }

    /// Waits until the sequences of this version have ended, until `limit` is over, or until the server stops. Then the
    /// version takes requests of sequences no more.
    pub(crate) async fn wait_for_sequences(&self, limit: Duration, server_stops: impl Future<Output = ()>) {
        if self.model.waits_for_sequences() {
            tokio::select! {
                () = self.last_sequence_ended() => {}
                () = tokio::time::sleep(limit) => {}
                () = server_stops => {}
            }
        }
        self.model.end_wait_for_sequences();
    }

    /// Returns when this version, which has been replaced, has no sequence and can get none.
    async fn last_sequence_ended(&self) {
        loop {
            self.runner_without_sequences().await;
            // A request that was accepted before may still begin a sequence.
            self.open().idle().await;
            if self.runner().live_sequences() == 0 {
                return;
            }
        }
    }

    /// Returns when no sequence lives here. Those of an ensemble end with its members.
    async fn runner_without_sequences(&self) {
        if let Some(executor) = self.executor() {
            executor.sequences_ended().await;
        }
    }

    /// Accepts no more requests, and returns when the last request has ended, and those of the versions that had the
    /// executor before. Then [`close`](Self::close) waits for the backend only.
    pub(crate) async fn finish_requests(&self) {
        self.accept_no_more();
        self.open().last_ended().await;
        if self.owns_executor() {
            for open in &self.earlier {
                open.close();
                open.last_ended().await;
            }
        }
    }

    /// The server stops: the ends of instances wait no longer for what they were given.
    pub(crate) fn abandon_releases(&self) {
        self.executor().iter().for_each(|executor| executor.abandon_releases());
    }

    /// Returns when the backend has released all that it was given, after the last request has ended.
    pub(crate) async fn released(&self) {
        if self.owns_executor()
            && let Some(executor) = self.executor()
        {
            executor.released().await;
        }
    }

    fn accept_no_more(&self) {
        self.open().close();
        if self.owns_executor() {
            self.end_queue_delay();
        }
    }

    /// Accepts no more requests, waits until the last request has ended, ends the instances on their threads, and then
    /// drops the backend's model. Blocks.
    pub(crate) fn close(&self) {
        self.accept_no_more();
        self.open().wait_for_the_last();
        if !self.owns_executor() {
            // The version does not come into service, or another one has the executor: instances of its own end.
            let update = self.update.lock().take();
            return drop(update);
        }
        for open in &self.earlier {
            open.close();
            open.wait_for_the_last();
        }
        self.runner().close();
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
