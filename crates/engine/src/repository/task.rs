//! The repository task performs the actions of the lifecycle and reports their results to it.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use inference::{Error, Name, agent::AgentAction, log_target::MULTILINE};
use lifecycle::{
    CommandId, CopyId, FoundModel, Generation, Lifecycle, LifecycleAction, LifecycleCommand,
    LifecycleOptions, LogLevel, ModelFiles, ModelKey, ModelListing, ModelOrigin, VersionStatus,
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until},
};

use super::{
    Command, Done, IndexEntry, LoadParameters, ModelTable, Polling, Repositories, RepositoryOptions,
    agent_thread::AgentThread,
    load::{LoadPlan, Loader, PlanError, Planned},
    retire::retire,
    scan, stamps,
};
use crate::{clock::now, model::Model};

/// The longest pause before a model that has failed is tried again in control mode `poll`.
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// The task's own state.
pub(super) struct RepositoryTask {
    lifecycle: Lifecycle,
    loader: Arc<Loader>,
    repositories: Repositories,
    published: Arc<ArcSwap<ModelTable>>,
    /// Work of blocking threads.
    events: JoinSet<Event>,
    /// Configurations to read and copies to build, in this order.
    jobs: VecDeque<Job>,
    running_jobs: usize,
    load_threads: usize,
    /// Copies that have been built and have not ended.
    copies: HashMap<CopyId, Arc<Model>>,
    /// What each load keeps until its last copy has ended.
    loads: HashMap<Generation, LoadState>,
    /// Commands that have not been answered.
    open: HashMap<CommandId, OpenCommand>,
    next_command: u64,
    polling: Option<PollingState>,
    /// Warnings about repositories that have been logged.
    told: BTreeSet<String>,
    /// Notifications of agents that the next answer waits for.
    untold: Vec<oneshot::Receiver<()>>,
    /// The table stays as it is: metrics and answers of the last requests still show the models.
    is_stopping: bool,
    stopped: Vec<Done<()>>,
}

struct OpenCommand {
    done: Done<Result<(), Error>>,
    given: Arc<LoadParameters>,
}

#[derive(Default)]
struct LoadState {
    plan: Option<Arc<LoadPlan>>,
    agents: Option<AgentThread>,
    /// The files that the load request has brought, as long as a copy may read them.
    _files: Option<TempDir>,
}

struct PollingState {
    polling: Polling,
    /// When to look next, if ever.
    next: Option<Instant>,
    /// A listing is being read.
    is_looking: bool,
    waiting: Vec<Done<Result<(), Error>>>,
}

/// Work that waits for one of the load threads.
enum Job {
    Plan {
        key: ModelKey,
        generation: Generation,
        directory: Option<Arc<PathBuf>>,
        given: Arc<LoadParameters>,
    },
    Load {
        key: ModelKey,
        copy: CopyId,
    },
}

/// What the repositories have, and what is wrong with them.
#[derive(Default)]
struct RepositoryListing {
    models: ModelListing,
    /// Lines for the log.
    problems: Vec<String>,
    /// The first error of a repository that cannot be read.
    failure: Option<Error>,
}

/// A slow operation has ended.
enum Event {
    Listed {
        command: CommandId,
        listing: RepositoryListing,
    },
    Found {
        name: Name,
        models: Result<Vec<(ModelKey, FoundModel)>, Error>,
    },
    Planned {
        generation: Generation,
        result: Result<Planned, PlanError>,
    },
    Loaded {
        copy: CopyId,
        result: Result<Arc<Model>, Error>,
    },
    Checked {
        generation: Generation,
        files: Option<Arc<ModelFiles>>,
    },
    Retired(Vec<CopyId>),
    Polled(RepositoryListing),
    /// Agents have been notified.
    Told,
    /// The models and versions of the repositories, for an index.
    Existing {
        models: Option<BTreeMap<ModelKey, BTreeSet<i64>>>,
        ready_only: bool,
        done: Done<Vec<IndexEntry>>,
    },
}

impl RepositoryTask {
    pub(super) fn new(
        loader: Arc<Loader>,
        options: RepositoryOptions,
        published: Arc<ArcSwap<ModelTable>>,
    ) -> Self {
        let RepositoryOptions { paths, namespacing, load_threads, polling } = options;
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
        Self {
            lifecycle,
            loader,
            repositories: Repositories::new(paths, namespacing),
            published,
            events: JoinSet::new(),
            jobs: VecDeque::new(),
            running_jobs: 0,
            load_threads,
            copies: HashMap::new(),
            loads: HashMap::new(),
            open: HashMap::new(),
            next_command: 0,
            polling: polling.map(|polling| PollingState {
                polling,
                next: None,
                is_looking: false,
                waiting: Vec::new(),
            }),
            told: BTreeSet::new(),
            untold: Vec::new(),
            is_stopping: false,
            stopped: Vec::new(),
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            let next_poll = self.polling.as_ref().and_then(|polling| polling.next);
            // All branches are cancel-safe: an item that is not returned stays in the queue or the set.
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                Some(event) = self.events.join_next() => match event {
                    Ok(event) => self.event(event),
                    // Work that may panic catches it where the model's name is known.
                    Err(error) => log::error!("work of the model repository was lost: {error}"),
                },
                () = sleep_until(next_poll.unwrap_or_else(Instant::now)), if next_poll.is_some() => self.poll(),
            }
            self.answer_polls();
            // What agents still do is an event that has not come.
            if self.lifecycle.is_idle() && self.events.is_empty() {
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
            Command::Unload { name, done } => {
                self.begin(LifecycleCommand::Unload { name }, LoadParameters::default(), done);
            }
            Command::UnloadAll { done } => {
                self.polling = None;
                self.is_stopping = true;
                self.stopped.push(done);
                let actions = self.lifecycle.stop();
                self.perform(actions);
            }
            Command::Index { ready_only, done } => self.index(ready_only, done),
            Command::Register { path, names, done } => {
                let _ = done.send(self.repositories.register(&path, names));
            }
            Command::Unregister { path, done } => {
                let _ = done.send(self.repositories.unregister(&path));
            }
            Command::Poll { done } => match &mut self.polling {
                Some(polling) => {
                    polling.waiting.push(done);
                    if !polling.is_looking {
                        self.poll();
                    }
                }
                None => drop(done.send(Err(Error::unavailable("polling is disabled")))),
            },
        }
    }

    fn begin(&mut self, command: LifecycleCommand, given: LoadParameters, done: Done<Result<(), Error>>) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.open.insert(id, OpenCommand { done, given: Arc::new(given) });
        let actions = self.lifecycle.command(id, command);
        self.perform(actions);
    }

    fn event(&mut self, event: Event) {
        let now = now();
        let actions = match event {
            Event::Listed { command, listing } => {
                // From now on the period counts.
                self.schedule_poll(None);
                let RepositoryListing { models, problems, failure } = listing;
                self.tell_problems(problems, None);
                self.lifecycle.listed(command, failure.map_or(Ok(models), Err), now)
            }
            Event::Found { name, models } => {
                let mut models = models;
                models.iter_mut().flatten().for_each(|(key, found)| self.mark_faulty(key, found));
                self.lifecycle.found(&name, models, now)
            }
            Event::Planned { generation, result } => {
                self.running_jobs -= 1;
                let result = match result {
                    Ok(planned) => self.keep(generation, planned),
                    Err(error) => Err(error),
                };
                self.lifecycle.planned(generation, result.map_err(Into::into), now)
            }
            Event::Loaded { copy, result } => {
                self.running_jobs -= 1;
                let result = result.map(|model| drop(self.copies.insert(copy, model)));
                self.lifecycle.loaded(copy, result, now)
            }
            Event::Checked { generation, files } => self.lifecycle.checked(generation, files, now),
            Event::Retired(copies) => {
                let mut actions = Vec::new();
                for copy in copies {
                    self.copies.remove(&copy);
                    actions.extend(self.lifecycle.retired(copy, now));
                }
                actions
            }
            Event::Polled(listing) => {
                let RepositoryListing { mut models, problems, failure } = listing;
                self.tell_problems(problems, failure.as_ref());
                models.models.iter_mut().for_each(|(key, found)| self.mark_faulty(key, found));
                let (actions, next) = self.lifecycle.polled(models, now);
                self.schedule_poll(next.map(|next| next - now));
                actions
            }
            Event::Told => Vec::new(),
            Event::Existing { models, ready_only, done } => {
                self.existing(models, ready_only, done);
                Vec::new()
            }
        };
        self.perform(actions);
    }

    /// Keeps what a load needs until its last copy has ended. Returns what the lifecycle must know.
    fn keep(
        &mut self,
        generation: Generation,
        planned: Planned,
    ) -> Result<lifecycle::PlannedModel, PlanError> {
        let Planned { plan, agents, files } = planned;
        let shown = plan.shown();
        let agents = agents.map(AgentThread::start).transpose()?;
        self.loads.insert(generation, LoadState { plan: Some(Arc::new(plan)), agents, _files: files });
        Ok(shown)
    }

    /// Versions whose backends have panicked need new copies, though their files are as they were.
    fn mark_faulty(&self, key: &ModelKey, found: &mut FoundModel) {
        let model = self.lifecycle.models().find(|(known, _)| *known == key);
        let versions = model.into_iter().flat_map(|(_, model)| model.versions());
        let is_faulty = |copy: &CopyId| self.copies.get(copy).is_some_and(|copy| copy.fault().is_some());
        found.faulty = versions
            .filter(|(_, status)| matches!(status, VersionStatus::Ready(copy) if is_faulty(copy)))
            .map(|(version, _)| version)
            .collect();
    }

    /// Publishes what has been decided, then performs what follows.
    fn perform(&mut self, actions: Vec<LifecycleAction>) {
        if !self.is_stopping {
            self.published.store(Arc::new(ModelTable::of(&self.lifecycle, &self.copies)));
        }
        actions.into_iter().for_each(|action| self.perform_one(action));
        self.wait_for_agents();
        self.start_jobs();
    }

    fn perform_one(&mut self, action: LifecycleAction) {
        match action {
            LifecycleAction::List { command } => {
                let listing = self.listing();
                self.events.spawn(async move { Event::Listed { command, listing: listing.await } });
            }
            LifecycleAction::Find { name } => self.find(name),
            LifecycleAction::Plan { key, generation, directory, given } => {
                let given = given.and_then(|command| self.open.get(&command));
                let given = given.map(|command| command.given.clone()).unwrap_or_default();
                self.jobs.push_back(Job::Plan { key, generation, directory, given });
            }
            LifecycleAction::Load { key, copy } => self.jobs.push_back(Job::Load { key, copy }),
            LifecycleAction::Check { generation, directory, .. } => {
                let config = self.loader.config_name(&directory);
                self.events.spawn(async move {
                    let looked = spawn_blocking(move || stamps::files(&directory, &config)).await;
                    let files = looked.ok().and_then(Result::ok).map(Arc::new);
                    Event::Checked { generation, files }
                });
            }
            LifecycleAction::TellComplete { generation } => {
                let agents = self.loads.get(&generation).and_then(|load| load.agents.as_ref());
                self.untold.extend(agents.map(|agents| agents.notify(AgentAction::LoadComplete)));
            }
            LifecycleAction::TellFailed { generation } => {
                self.forget(generation, AgentAction::LoadFail);
            }
            LifecycleAction::Retire { generation, versions, unloads } => {
                self.retire(generation, &versions, unloads);
            }
            LifecycleAction::End { generation } => {
                self.forget(generation, AgentAction::UnloadComplete);
            }
            LifecycleAction::Answer { command, result } => self.answer(command, result),
            LifecycleAction::Log { level, text } => match level {
                LogLevel::Error => log::error!(target: MULTILINE, "{text}"),
                LogLevel::Warning => log::warn!("{text}"),
                LogLevel::Info => log::info!("{text}"),
            },
        }
    }

    /// Forgets a load whose copies have ended, after its agents have been notified.
    fn forget(&mut self, generation: Generation, action: AgentAction) {
        let load = self.loads.remove(&generation);
        if let Some(agents) = load.and_then(|load| load.agents) {
            self.untold.push(agents.finish(action));
        }
    }

    /// Answers a command when the agents have been notified of all that came before.
    fn answer(&mut self, command: CommandId, result: Result<(), Error>) {
        let Some(OpenCommand { done, .. }) = self.open.remove(&command) else { return };
        let untold = std::mem::take(&mut self.untold);
        if untold.is_empty() {
            // The caller may have gone.
            let _ = done.send(result);
            return;
        }
        self.events.spawn(async move {
            join_all(untold).await;
            let _ = done.send(result);
            Event::Told
        });
    }

    /// Waits beside everything else for agents that no command waits for.
    fn wait_for_agents(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if !untold.is_empty() {
            self.events.spawn(async move {
                join_all(untold).await;
                Event::Told
            });
        }
    }

    fn retire(&mut self, generation: Generation, versions: &[i64], unloads: bool) {
        let agents = self.loads.get(&generation).and_then(|load| load.agents.as_ref());
        let told = agents.filter(|_| unloads).map(|agents| agents.notify(AgentAction::Unload));
        let table = self.published.load();
        let copies: Vec<_> = versions
            .iter()
            .filter_map(|&version| {
                let id = CopyId { generation, version };
                let copy = self.copies.get(&id)?.clone();
                // While the server stops, the table still shows the copy itself.
                let successor = table.model(copy.name(), Some(version)).ok();
                let successor = successor.filter(|successor| !Arc::ptr_eq(successor, &copy));
                Some((id, copy, successor))
            })
            .collect();
        if copies.is_empty() {
            return;
        }
        self.events.spawn(async move {
            if let Some(told) = told {
                // The thread of the agents answers, or it has ended.
                let _ = told.await;
            }
            let ids = copies.iter().map(|(id, ..)| *id).collect();
            let retired = copies.into_iter().map(|(_, copy, successor)| retire(copy, successor));
            join_all(retired).await;
            Event::Retired(ids)
        });
    }
}

/// Work of blocking threads.
impl RepositoryTask {
    /// Begins waiting work while load threads are free.
    fn start_jobs(&mut self) {
        while self.running_jobs < self.load_threads
            && let Some(job) = self.jobs.pop_front()
        {
            self.running_jobs += 1;
            let loader = self.loader.clone();
            match job {
                Job::Plan { key, generation, directory, given } => {
                    let plan =
                        move || loader.plan(&key.name, directory.as_deref().map(PathBuf::as_path), &given);
                    self.events.spawn(async move {
                        let result = spawn_blocking(plan).await.unwrap_or_else(|panic| {
                            let text = format!("the model's configuration could not be read: {panic}");
                            Err(Error::internal(text).into())
                        });
                        Event::Planned { generation, result }
                    });
                }
                Job::Load { key, copy } => {
                    let plan = self.loads.get(&copy.generation).and_then(|load| load.plan.clone());
                    let load = move || match plan {
                        Some(plan) => loader.load(&plan, copy.version),
                        None => Err(Error::internal(format!("the load of model '{key}' has no plan"))),
                    };
                    self.events.spawn(async move {
                        let result = spawn_blocking(load).await.unwrap_or_else(|panic| {
                            let text = format!("the backend panicked while loading the model: {panic}");
                            Err(Error::internal(text))
                        });
                        Event::Loaded { copy, result }
                    });
                }
            }
        }
    }

    fn find(&mut self, name: Name) {
        let (repositories, loader) = (self.repositories.clone(), self.loader.clone());
        let find = {
            let name = name.clone();
            move || {
                let found = scan::find(&repositories, &name)?;
                Ok(found.into_iter().map(|(key, at)| (key, looked_at(&loader, at))).collect())
            }
        };
        self.events.spawn(async move {
            let models = spawn_blocking(find).await;
            let models = models.unwrap_or_else(|panic| {
                Err(Error::internal(format!("the repositories could not be read: {panic}")))
            });
            Event::Found { name, models }
        });
    }

    /// Lists the repositories with the files of their models.
    fn listing(&self) -> impl Future<Output = RepositoryListing> + use<> {
        let (repositories, loader) = (self.repositories.clone(), self.loader.clone());
        let list = move || {
            let directories = scan::list(&repositories);
            let models = directories.models.into_iter();
            let models = models.map(|(key, at)| (key, looked_at(&loader, at))).collect();
            let failure = directories.unreadable.first().map(|(_, error)| error.clone());
            let unreadable = directories.unreadable.into_iter().map(|(name, _)| name).collect();
            RepositoryListing {
                models: ModelListing { models, unreadable },
                problems: directories.warnings,
                failure,
            }
        };
        async move {
            spawn_blocking(list).await.unwrap_or_else(|panic| RepositoryListing {
                failure: Some(Error::internal(format!("the repositories could not be read: {panic}"))),
                ..RepositoryListing::default()
            })
        }
    }

    /// Logs what is wrong with the repositories, once until it has changed.
    fn tell_problems(&mut self, problems: Vec<String>, failure: Option<&Error>) {
        let failure = failure.filter(|_| self.polling.is_some());
        let failure = failure.map(|error| format!("the models of a repository stay as they are: {error}"));
        let now: BTreeSet<_> = problems.into_iter().chain(failure).collect();
        now.difference(&self.told).for_each(|problem| log::warn!("{problem}"));
        self.told = now;
    }

    /// Looks for changes.
    fn poll(&mut self) {
        let listing = self.listing();
        if let Some(polling) = &mut self.polling {
            polling.next = None;
            polling.is_looking = true;
            self.events.spawn(async move { Event::Polled(listing.await) });
        }
    }

    /// Answers those who have asked for a look when the loads that follow have ended.
    fn answer_polls(&mut self) {
        if let Some(polling) = &mut self.polling
            && !polling.is_looking
            && !self.lifecycle.has_operations()
        {
            for done in polling.waiting.drain(..) {
                // The caller may have gone.
                let _ = done.send(Ok(()));
            }
        }
    }

    /// Sets when to look for changes again: after the period, or earlier if a change is about to settle.
    fn schedule_poll(&mut self, earlier: Option<Duration>) {
        if let Some(state) = &mut self.polling {
            state.is_looking = false;
            let period = Some(state.polling.period).filter(|period| !period.is_zero());
            let wait = match (period, earlier) {
                (Some(period), Some(earlier)) => Some(period.min(earlier)),
                (period, earlier) => period.or(earlier),
            };
            // Without a period, nothing is looked at after the start but what has begun to change.
            state.next = wait.map(|wait| Instant::now() + wait.max(Duration::from_millis(1)));
        }
    }

    fn index(&mut self, ready_only: bool, done: Done<Vec<IndexEntry>>) {
        let repositories = self.repositories.clone();
        let read = move || {
            let directories = scan::list(&repositories);
            if !directories.unreadable.is_empty() {
                return None;
            }
            let mut models = BTreeMap::new();
            for (key, at) in directories.models {
                let versions: &mut BTreeSet<i64> = models.entry(key).or_default();
                at.iter().for_each(|directory| versions.extend(scan::versions(directory)));
            }
            Some(models)
        };
        self.events.spawn(async move {
            let models = spawn_blocking(read).await.ok().flatten();
            Event::Existing { models, ready_only, done }
        });
    }

    fn existing(
        &mut self,
        models: Option<BTreeMap<ModelKey, BTreeSet<i64>>>,
        ready_only: bool,
        done: Done<Vec<IndexEntry>>,
    ) {
        if let Some(models) = &models {
            self.lifecycle.exist(models);
        }
        let table = ModelTable::of(&self.lifecycle, &self.copies);
        let mut lines = table.index(ready_only);
        if !ready_only {
            let unknown = models.iter().flatten().filter(|(key, _)| !table.knows(&key.name));
            lines.extend(unknown.map(|(key, _)| IndexEntry {
                name: key.name.clone(),
                version: None,
                state: None,
                reason: String::new(),
            }));
            lines.sort_by(|one, other| (&one.name, one.version).cmp(&(&other.name, other.version)));
        }
        if !self.is_stopping {
            self.published.store(Arc::new(table));
        }
        // The caller may have gone.
        let _ = done.send(lines);
    }
}

/// A model's directories and, if there is one, what is in it. Blocks.
fn looked_at(loader: &Loader, directories: Vec<Arc<PathBuf>>) -> FoundModel {
    let mut found = FoundModel::default();
    if let [directory] = directories.as_slice() {
        found.is_incomplete = stamps::is_incomplete(directory);
        // What cannot be read is different from all that was read.
        found.files = Arc::new(stamps::files(directory, &loader.config_name(directory)).unwrap_or_default());
    }
    found.directories = directories;
    found
}
