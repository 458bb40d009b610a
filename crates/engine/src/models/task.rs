//! The repository task: commands and results of slow work reach the lifecycle here. `actions` performs what it decides.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use host::now;
use inference::repository::{LocalModelFiles, RepositoryOpener};
use lifecycle::{
    CommandId, FoundModel, Generation, Lifecycle, LifecycleAction, LifecycleCommand, LifecycleOptions,
    LoadedVersionId, ManagedModel, ModelFiles, ModelKey, ModelOrigin, VersionStatus,
};
use repository::{
    LoadParameters,
    config_file::PlanError,
    remote::{StoreWait, StoreWaitEnd},
    repositories::{Repositories, RepositorySource},
    watch::FileWatcher,
};
use scheduling::Timestamp;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use vocabulary::{Error, Name};

use super::{
    agent_thread::AgentThread,
    blocking::{self, BuiltVersion, ExistingModel, LoadPlace, RepositoryListing},
    closing_threads::ClosingThreads,
    command::{Command, Done},
    copies::Copies,
    downloads::Downloads,
    heap_trimmer::HeapTrimmer,
    load::{LoadedModel, VersionLoader},
    plan::{KeptFiles, LoadBase, LoadPlan, Planned},
    polling::PollingState,
    retire::Retirement,
    survey,
    table::ModelTable,
};
use crate::{model_state::IndexEntry, options::Polling};

mod abandoned;
mod actions;
mod ensembles;
mod looks;

/// The longest pause before a model that has failed is tried again in control mode `poll`.
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// How the repository task works, fixed at its start.
pub(crate) struct RepositoryOptions {
    /// Directories and URLs of the model repositories.
    pub(crate) paths: Vec<PathBuf>,
    /// Opens repositories in object stores.
    pub(crate) opener: Option<Arc<dyn RepositoryOpener>>,
    /// Models of different repositories may have the same name.
    pub(crate) namespacing: bool,
    /// How many models are read and loaded at the same time, at least 1.
    pub(crate) load_threads: usize,
    /// How long a copy that has been replaced waits for its sequences.
    pub(crate) sequence_limit: Duration,
    /// Load requests may bring a configuration and files.
    pub(crate) takes_overrides: bool,
    /// When the task looks for changes. `None`: never.
    pub(crate) polling: Option<Polling>,
}

/// The task's own state.
pub(super) struct RepositoryTask {
    lifecycle: Lifecycle,
    loader: Arc<VersionLoader>,
    repositories: Repositories,
    published: Arc<ArcSwap<ModelTable>>,
    table_changed: Arc<Notify>,
    /// Work that reads repositories and loads models. A stop may leave it behind.
    events: JoinSet<Event>,
    /// Copies that end, and agents that are notified. A stop waits for them.
    endings: JoinSet<Event>,
    /// Configurations to read and copies to build, in this order.
    jobs: VecDeque<Job>,
    running_jobs: usize,
    load_threads: usize,
    copies: Copies,
    /// What is published next.
    table: ModelTable,
    /// The files that copies have of their own.
    copied_files: HashMap<LoadedVersionId, Arc<dyn LocalModelFiles>>,
    /// What each load keeps until its last copy has ended.
    loads: HashMap<Generation, LoadState>,
    /// Commands that have not been answered.
    open: HashMap<CommandId, WaitingCaller>,
    next_command: u64,
    polling: Option<PollingState>,
    /// Notifications of the file system, if they are wanted.
    watcher: Option<Arc<FileWatcher>>,
    /// Warnings about repositories that have been logged.
    told: BTreeSet<String>,
    /// Notifications of agents that the next answer waits for.
    untold: Vec<oneshot::Receiver<()>>,
    /// The table stays as it is: metrics and answers of the last requests still show the models.
    stop: watch::Sender<bool>,
    /// Loads that still run have no user.
    has_abandoned_loads: bool,
    freed_memory: HeapTrimmer,
    retirement: Retirement,
    stopped: Vec<Done<()>>,
    /// Ends what waits for stores when the server stops.
    store_waits: StoreWaitEnd,
    downloads: Downloads,
}

struct WaitingCaller {
    done: Done<Result<(), Error>>,
    given: Arc<LoadParameters>,
}

struct LoadState {
    plan: Arc<LoadPlan>,
    agents: Option<AgentThread>,
    _files: Arc<KeptFiles>,
    /// Ends the downloads of the load.
    wait: StoreWait,
}

/// Work that waits for one of the load threads.
enum Job {
    Plan {
        key: ModelKey,
        generation: Generation,
        place: LoadPlace,
        given: Arc<LoadParameters>,
        wait: StoreWait,
    },
    Load {
        plan: Arc<LoadPlan>,
        copy: LoadedVersionId,
        /// The copy that serves, if the files of the version are still the same.
        base: Option<LoadBase>,
        wait: StoreWait,
    },
}

/// A slow operation has ended.
enum Event {
    Listed {
        command: CommandId,
        listing: Box<RepositoryListing>,
    },
    Found {
        name: Name,
        models: Result<Vec<(ModelKey, FoundModel)>, Error>,
    },
    Planned {
        generation: Generation,
        wait: StoreWait,
        result: Result<Box<Planned>, PlanError>,
    },
    Loaded {
        copy: LoadedVersionId,
        result: Result<BuiltVersion, Error>,
    },
    Checked {
        generation: Generation,
        files: Option<Arc<ModelFiles>>,
    },
    Retired(Vec<LoadedVersionId>),
    Polled(Box<RepositoryListing>),
    /// Agents have been notified, or what an abandoned load has made has ended.
    Told,
    /// A repository that is to be added has been looked for.
    Sought {
        name: Name,
        source: RepositorySource,
        mapped: BTreeMap<Name, String>,
        result: Result<(), Error>,
        done: Done<Result<(), Error>>,
    },
    /// The models and versions of the repositories, for an index.
    Existing {
        models: Option<BTreeMap<ModelKey, ExistingModel>>,
        ready_only: bool,
        done: Done<Vec<IndexEntry>>,
    },
}

impl RepositoryTask {
    pub(super) fn new(
        loader: Arc<VersionLoader>,
        options: &RepositoryOptions,
        repositories: Repositories,
        (published, table_changed): (Arc<ArcSwap<ModelTable>>, Arc<Notify>),
    ) -> Self {
        let &RepositoryOptions { load_threads, polling, sequence_limit, .. } = options;
        let lifecycle = Lifecycle::new(LifecycleOptions {
            polls: polling.is_some(),
            partial_models: loader.policy().partial_models,
            settle: polling.map(|polling| polling.settle).unwrap_or_default(),
            first_retry: polling
                .map(|polling| polling.period)
                .unwrap_or_default()
                .max(Duration::from_secs(1)),
            longest_retry: LONGEST_RETRY,
        });
        let polling = polling.map(PollingState::new);
        let is_watching = polling.as_ref().is_some_and(PollingState::follows_notifications);
        let freed_memory = HeapTrimmer::new(loader.memory());
        let table = ModelTable::new(loader.faults().clone());
        let (stop, is_stopping) = watch::channel(false);
        let threads = ClosingThreads::new(loader.threads().clone());
        let (memory, has_left_copies) = (loader.memory(), Arc::default());
        let retirement = Retirement { sequence_limit, is_stopping, threads, memory, has_left_copies };
        Self {
            lifecycle,
            loader,
            repositories,
            published,
            table_changed,
            events: JoinSet::new(),
            endings: JoinSet::new(),
            jobs: VecDeque::new(),
            running_jobs: 0,
            load_threads,
            copies: Copies::default(),
            table,
            copied_files: HashMap::new(),
            loads: HashMap::new(),
            open: HashMap::new(),
            next_command: 0,
            polling,
            watcher: is_watching.then(|| Arc::new(FileWatcher::default())),
            told: BTreeSet::new(),
            untold: Vec::new(),
            stop,
            has_abandoned_loads: false,
            freed_memory,
            retirement,
            stopped: Vec::new(),
            store_waits: StoreWaitEnd::default(),
            downloads: Downloads::default(),
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            let next_poll = self.polling.as_ref().and_then(PollingState::next);
            // More notifications say nothing new before the next look begins.
            let is_hinted = self.polling.as_ref().is_none_or(PollingState::is_hinted);
            // All branches are cancel-safe: an item that is not returned stays in the queue or the set.
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                Some(event) = self.events.join_next() => self.joined(event),
                Some(event) = self.endings.join_next() => self.joined(event),
                () = changed(self.watcher.as_deref()), if !is_hinted => {
                    self.polling.iter_mut().for_each(|polling| polling.hint(Instant::now()));
                }
                () = sleep_until(next_poll.unwrap_or_else(Instant::now)), if next_poll.is_some() => self.poll(),
            }
            if !self.lifecycle.has_operations() {
                self.polling.iter_mut().for_each(PollingState::answer);
            }
            // What agents still do is an ending that has not come.
            if !self.stopped.is_empty() && self.endings.is_empty() && self.lifecycle.is_idle() {
                for done in self.stopped.drain(..) {
                    // The caller may have gone.
                    let _ = done.send(());
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::LoadAll { done } => {
                self.begin(LifecycleCommand::LoadAll, LoadParameters::default(), done);
            }
            Command::Load { name, given, done } => {
                let origin = match (&given.config, given.files.is_empty()) {
                    (None, true) => ModelOrigin::Repository,
                    (Some(_), true) => ModelOrigin::GivenConfig,
                    (_, false) => ModelOrigin::GivenFiles,
                };
                self.begin(LifecycleCommand::Load { name, origin }, given, done);
            }
            Command::Unload { name, dependents, done } => {
                let text = format!("the download of model '{name}' was ended: the model is unloaded");
                self.downloads.end_of(&name, &Error::unavailable(text));
                self.begin(LifecycleCommand::Unload { name, dependents }, LoadParameters::default(), done);
            }
            Command::RefuseCommands { done } => {
                (self.polling, self.watcher) = (None, None);
                self.end_store_waits();
                let actions = self.lifecycle.refuse_commands();
                self.perform(actions);
                // The caller may have gone.
                let _ = done.send(());
            }
            Command::AbandonLoads { done } => self.abandon_loads(done),
            Command::UnloadAll { done } => {
                (self.polling, self.watcher) = (None, None);
                self.stop.send_replace(true);
                self.stopped.push(done);
                self.end_store_waits();
                let actions = self.lifecycle.stop();
                self.perform(actions);
            }
            Command::Index { ready_only, done } => {
                let models = blocking::existing(self.repositories.clone(), self.store_waits.wait());
                self.events.spawn(async move { Event::Existing { models: models.await, ready_only, done } });
            }
            Command::Survey { only, done } => {
                let wait = self.store_waits.wait();
                let surveyed = survey::survey(self.repositories.clone(), self.loader.clone(), only, wait);
                self.events.spawn(async move {
                    // The caller may have gone.
                    let _ = done.send(surveyed.await);
                    Event::Told
                });
            }
            Command::Register { path, mapped, done } => {
                self.seek(&path, mapped, done);
            }
            Command::Unregister { path, done } => {
                let _ = done.send(self.repositories.unregister(&path));
            }
            Command::Poll { done } => match &mut self.polling {
                Some(polling) => {
                    if polling.wait(done) {
                        self.poll();
                    }
                }
                None => drop(done.send(Err(Error::unavailable("polling is disabled")))),
            },
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    fn begin(&mut self, command: LifecycleCommand, given: LoadParameters, done: Done<Result<(), Error>>) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.open.insert(id, WaitingCaller { done, given: Arc::new(given) });
        let actions = self.lifecycle.command(id, command, now());
        self.perform(actions);
    }

    fn joined(&mut self, event: Result<Event, JoinError>) {
        match event {
            Ok(event) => self.event(event),
            // Work that may panic catches it where the model's name is known.
            Err(error) => log::error!("work of the model repository was lost: {error}"),
        }
    }

    fn event(&mut self, event: Event) {
        let Some(event) = self.unless_abandoned(event) else { return };
        let now = now();
        let actions = match event {
            Event::Listed { command, listing } => {
                // From now on the period counts.
                self.polling.iter_mut().for_each(|polling| polling.looked(None, Instant::now()));
                let RepositoryListing { models, problems, failures } = *listing;
                self.tell_problems(problems, &[]);
                let failure = failures.into_iter().next();
                self.lifecycle.listed(command, failure.map_or(Ok(models), Err), now)
            }
            Event::Found { name, models } => {
                let mut models = models;
                models.iter_mut().flatten().for_each(|(key, found)| self.mark_faulty(key, found));
                self.lifecycle.found(&name, models, now)
            }
            Event::Planned { generation, wait, result } => {
                self.running_jobs -= 1;
                let result = match result {
                    Ok(planned) => self.keep(generation, *planned, wait),
                    Err(error) => Err(error),
                };
                self.lifecycle.planned(generation, result.map_err(Into::into), now)
            }
            Event::Loaded { copy, result } => {
                self.running_jobs -= 1;
                // A load needs more memory than the model, and one that has failed leaves all of it.
                self.freed_memory.return_soon();
                let result = result.and_then(|loaded| self.keep_copy(copy, loaded));
                self.lifecycle.loaded(copy, result, now)
            }
            Event::Checked { generation, files } => self.lifecycle.checked(generation, files, now),
            Event::Retired(copies) => self.retired(copies, now),
            Event::Polled(listing) => {
                let RepositoryListing { mut models, problems, failures } = *listing;
                self.tell_problems(problems, &failures);
                self.table.set_readable(Arc::new(models.readable()));
                models.models.iter_mut().for_each(|(key, found)| self.mark_faulty(key, found));
                let (actions, next) = self.lifecycle.polled(models, now);
                self.polling.iter_mut().for_each(|polling| {
                    polling.looked(next.map(|next| next - now), Instant::now());
                });
                actions
            }
            Event::Told => Vec::new(),
            Event::Sought { name, source, mapped, result, done } => {
                let registered = result.and_then(|()| self.repositories.register(name, source, mapped));
                // The caller may have gone.
                let _ = done.send(registered);
                Vec::new()
            }
            Event::Existing { models, ready_only, done } => {
                return self.answer_index(models.as_ref(), ready_only, done);
            }
        };
        self.perform(actions);
    }

    /// Forgets copies that have ended. Returns what follows.
    fn retired(&mut self, copies: Vec<LoadedVersionId>, now: Timestamp) -> Vec<LifecycleAction> {
        let mut actions = Vec::new();
        for copy in copies {
            self.copies.remove(copy);
            self.copied_files.remove(&copy);
            actions.extend(self.lifecycle.retired(copy, now));
        }
        // The process frees everything when it ends.
        if !self.is_stopping() {
            self.freed_memory.return_soon();
        }
        actions
    }

    /// Keeps a copy until it has ended.
    ///
    /// # Errors
    /// The members of an ensemble do not fit.
    fn keep_copy(
        &mut self,
        id: LoadedVersionId,
        BuiltVersion { model, files }: BuiltVersion,
    ) -> Result<(), Error> {
        let loaded = match model {
            LoadedModel::Whole(loaded) => loaded,
            LoadedModel::Ensemble(parts) => self.make_ensemble(*parts)?,
        };
        self.copies.insert(id, loaded);
        self.copied_files.extend(files.map(|files| (id, files)));
        Ok(())
    }

    /// Keeps what a load needs until its last copy has ended. Returns what the lifecycle must know.
    fn keep(
        &mut self,
        generation: Generation,
        planned: Planned,
        wait: StoreWait,
    ) -> Result<lifecycle::PlannedModel, PlanError> {
        let Planned { plan, agents, files } = planned;
        let shown = plan.shown();
        let files = Arc::new(files);
        let threads = self.loader.threads();
        let agents = agents.map(|agents| AgentThread::start(agents, files.clone(), threads)).transpose()?;
        self.loads.insert(generation, LoadState { plan: Arc::new(plan), agents, _files: files, wait });
        Ok(shown)
    }

    /// Versions whose backends have panicked need new copies, though their files are as they were.
    fn mark_faulty(&self, key: &ModelKey, found: &mut FoundModel) {
        let versions = self.lifecycle.model(key).into_iter().flat_map(ManagedModel::versions);
        let is_faulty =
            |copy: LoadedVersionId| self.copies.get(copy).is_some_and(|copy| copy.fault().is_some());
        let faulty = versions
            .filter(|(_, status)| matches!(status, VersionStatus::Ready(copy) if is_faulty(*copy)))
            .map(|(version, _)| version);
        found.faulty.extend(faulty);
    }

    /// Ends what waits for stores.
    fn end_store_waits(&self) {
        let exiting = Error::unavailable("Server exiting");
        self.downloads.end_all(&exiting);
        self.store_waits.end(exiting);
    }
}

/// Returns when the file system has notified the server of a change.
async fn changed(watcher: Option<&FileWatcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}
