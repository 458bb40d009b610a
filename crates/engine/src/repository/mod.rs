//! The repository task, which alone changes the states of models. It receives commands and publishes snapshots.
//!
//! Blocking threads read configurations and load models, at most `--model-load-thread-count` at a time. Each result
//! comes back to the task as an event. Readers look at the latest [`ModelTable`].
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use inference::{Error, Name, agent::AgentAction, log_target::MULTILINE};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use crate::model::Model;

mod agents;
mod files;
mod inferer;
mod load;
mod scan;
mod strategy;
mod table;
mod unload;

use agents::Agents;
use inferer::TableInferer;
use load::{PlanError, Planned};

pub(crate) use load::Loader;
pub(crate) use table::ModelTable;
pub use table::{IndexEntry, ModelState};
use table::{NoVersion, NoVersionCause, VersionEntry, Versions};
use unload::unload;

/// The handle of the repository task.
pub(crate) struct Repository {
    commands: mpsc::Sender<Command>,
    table: Arc<ArcSwap<ModelTable>>,
}

/// A command to the repository task.
enum Command {
    /// Load every model of every repository.
    LoadAll { done: oneshot::Sender<Result<(), Error>> },
    /// End every model that has been built.
    UnloadAll { done: oneshot::Sender<()> },
}

impl Repository {
    /// Starts the task without loading a model. Must be called in a tokio runtime.
    pub(crate) fn start(loader: Loader, repositories: Vec<PathBuf>, load_threads: usize) -> Self {
        // Commands are rare, and each sender waits for the result. A short queue is enough.
        let (commands, inbox) = mpsc::channel(16);
        let table = Arc::new(ArcSwap::default());
        let inferer = Arc::new(TableInferer::new(&table));
        let keeper = RepositoryTask {
            loader: Arc::new(loader.with_inferer(inferer)),
            repositories,
            threads: Arc::new(Semaphore::new(load_threads)),
            models: ModelTable::default(),
            published: table.clone(),
            loads: JoinSet::new(),
            loading: BTreeMap::new(),
            agents: BTreeMap::new(),
            waiting: Vec::new(),
        };
        // The task ends when this handle, the last sender, is dropped.
        tokio::spawn(keeper.run(inbox));
        Self { commands, table }
    }

    /// Loads every model. Returns when each model is ready or has failed.
    ///
    /// # Errors
    /// A repository that cannot be read. A model that fails is not an error of this function: the table contains its
    /// reason.
    pub(crate) async fn load_all(&self) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        let stopped = |_| Error::internal("the model repository has stopped");
        self.commands.send(Command::LoadAll { done }).await.map_err(|_| stopped(()))?;
        answer.await.map_err(|_| stopped(()))?
    }

    /// Ends every model that has been built. Returns when their last requests have ended. The table stays as it is, and
    /// its models accept no requests.
    pub(crate) async fn unload_all(&self) {
        let (done, answer) = oneshot::channel();
        // Without the task there is nothing to end.
        if self.commands.send(Command::UnloadAll { done }).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// The latest snapshot.
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<ModelTable>> {
        self.table.load()
    }
}

/// The task's own state.
struct RepositoryTask {
    loader: Arc<Loader>,
    repositories: Vec<PathBuf>,
    threads: Arc<Semaphore>,
    models: ModelTable,
    published: Arc<ArcSwap<ModelTable>>,
    loads: JoinSet<Event>,
    /// Models with versions that are still being loaded.
    loading: BTreeMap<Name, Loading>,
    /// The agents of the loaded models.
    agents: BTreeMap<Name, Agents>,
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
}

/// A model that is being loaded.
struct Loading {
    versions_left: usize,
    /// Versions that have been loaded.
    loaded: Vec<Arc<Model>>,
    any_has_failed: bool,
    agents: Option<Agents>,
}

/// A slow operation has ended.
enum Event {
    /// The configurations of these models have been read, with success or without.
    Polled(Vec<(Name, Result<Planned, PlanError>)>),
    /// A version has been loaded, with success or without.
    Loaded { name: Name, version: i64, result: Result<Arc<Model>, Error> },
    /// The loaded versions of a failed model have ended. Its agents have not been notified yet.
    Discarded { name: Name, agents: Option<Agents> },
    /// The agents of a model have been notified of the end of its load. They stay attached if it is loaded.
    AgentsTold { name: Name, agents: Option<Agents> },
}

impl RepositoryTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            // Both branches are cancel-safe: an item that is not returned stays in the queue or the set.
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::LoadAll { done }) => self.load_all(done),
                    Some(Command::UnloadAll { done }) => self.unload_all(done),
                    None => return,
                },
                Some(event) = self.loads.join_next() => match event {
                    Ok(Event::Polled(models)) => self.polled(models),
                    Ok(Event::Loaded { name, version, result }) => self.loaded(name, version, result),
                    Ok(Event::Discarded { name, agents }) => self.load_failed(name, agents),
                    Ok(Event::AgentsTold { name, agents }) => {
                        self.agents.extend(agents.map(|agents| (name, agents)));
                    }
                    // A load catches its own panics, where the model's name is known.
                    Err(error) => log::error!("a model load was lost: {error}"),
                },
            }
            if self.loads.is_empty() {
                self.waiting.drain(..).for_each(|done| drop(done.send(Ok(()))));
            }
        }
    }

    fn load_all(&mut self, done: oneshot::Sender<Result<(), Error>>) {
        let listing = match scan::list(&self.repositories) {
            Ok(listing) => listing,
            Err(error) => return drop(done.send(Err(error))),
        };
        listing.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        for (name, places) in listing.duplicated {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            log::error!(
                "failed to poll model '{name}': not unique across all model repositories ({})",
                places.join(", ")
            );
            let reason = "model appears in two or more repositories".to_owned();
            self.no_version(name, NoVersion { cause: NoVersionCause::Refused, reason });
        }
        self.poll(listing.unique);
        self.waiting.push(done);
        self.publish();
    }

    /// Reads the configurations of these models. The models load in the order of their names, whichever configuration
    /// is read first. So no load starts before all configurations have been read.
    fn poll(&mut self, models: BTreeMap<Name, PathBuf>) {
        let (loader, threads) = (self.loader.clone(), self.threads.clone());
        let poll = move |(name, directory): (Name, PathBuf)| {
            let (loader, threads) = (loader.clone(), threads.clone());
            async move {
                // The semaphore is never closed.
                let _permit = threads.acquire_owned().await;
                let planning = tokio::task::spawn_blocking({
                    let name = name.clone();
                    move || loader.plan(&name, &directory)
                });
                let result = planning.await.unwrap_or_else(|panic| {
                    let text = format!("the model's configuration could not be read: {panic}");
                    Err(Error::internal(text).into())
                });
                (name, result)
            }
        };
        self.loads.spawn(async move { Event::Polled(join_all(models.into_iter().map(poll)).await) });
    }

    fn polled(&mut self, models: Vec<(Name, Result<Planned, PlanError>)>) {
        for (name, result) in models {
            match result {
                Ok(Planned { plan, agents }) => {
                    let plan = Arc::new(plan);
                    let versions_left = plan.versions().len();
                    let loading =
                        Loading { versions_left, loaded: Vec::new(), any_has_failed: false, agents };
                    self.loading.insert(name.clone(), loading);
                    self.load(&name, &plan);
                }
                Err(PlanError { cause, error }) => {
                    log::error!(target: MULTILINE, "Poll failed for model directory '{name}': {error}");
                    self.no_version(name, NoVersion { cause, reason: error.with_code() });
                }
            }
        }
        self.publish();
    }

    fn no_version(&mut self, name: Name, problem: NoVersion) {
        self.models.models.insert(name, Versions { versions: Default::default(), problem: Some(problem) });
    }

    fn load(&mut self, name: &Name, plan: &Arc<load::LoadPlan>) {
        let model = self.models.models.entry(name.clone()).or_default();
        for &version in plan.versions() {
            log::info!("loading: {name}:{version}");
            model.versions.insert(version, VersionEntry::Loading);
            let (loader, plan, threads, name) =
                (self.loader.clone(), plan.clone(), self.threads.clone(), name.clone());
            self.loads.spawn(async move {
                // The semaphore is never closed.
                let _permit = threads.acquire_owned().await;
                let loaded = tokio::task::spawn_blocking(move || loader.load(&plan, version)).await;
                let result = loaded.unwrap_or_else(|panic| {
                    Err(Error::internal(format!("the backend panicked while loading the model: {panic}")))
                });
                Event::Loaded { name, version, result }
            });
        }
    }

    /// As Triton: either all versions of a model come into service together, or none of them does.
    fn loaded(&mut self, name: Name, version: i64, result: Result<Arc<Model>, Error>) {
        let Some(loading) = self.loading.get_mut(&name) else { return };
        loading.versions_left -= 1;
        let all_have_ended = loading.versions_left == 0;
        match result {
            Ok(model) => loading.loaded.push(model),
            Err(error) => {
                log::error!("failed to load '{name}' version {version}: {}", error.with_code());
                loading.any_has_failed = true;
                self.set(&name, version, VersionEntry::Unavailable(error.with_code()));
            }
        }
        if all_have_ended && let Some(loading) = self.loading.remove(&name) {
            let is_served =
                !loading.any_has_failed || self.loader.policy().partial_models && !loading.loaded.is_empty();
            if is_served { self.serve(name, loading) } else { self.discard(name, loading) }
        }
        self.publish();
    }

    /// Puts the loaded versions into service.
    fn serve(&mut self, name: Name, loading: Loading) {
        for model in loading.loaded {
            let version = model.version();
            log::info!("successfully loaded '{name}' version {version}");
            self.set(&name, version, VersionEntry::Ready(model));
        }
        if let Some(agents) = loading.agents {
            self.notify_agents(name, agents, true);
        }
    }

    /// Ends the loaded versions, because another version of the model has failed.
    fn discard(&mut self, name: Name, loading: Loading) {
        let Loading { loaded, agents, .. } = loading;
        if loaded.is_empty() {
            return self.load_failed(name, agents);
        }
        for model in &loaded {
            let version = model.version();
            log::warn!(
                "'{name}' version {version} is not served, because another version of the model failed to load \
                 (--serve-partial-models=true serves it)"
            );
            self.set(&name, version, VersionEntry::Unavailable("unloaded".to_owned()));
        }
        self.loads.spawn(async move {
            unload(loaded, None).await;
            Event::Discarded { name, agents }
        });
    }

    fn load_failed(&mut self, name: Name, agents: Option<Agents>) {
        if let Some(agents) = agents {
            self.notify_agents(name, agents, false);
        }
    }

    fn set(&mut self, name: &Name, version: i64, state: VersionEntry) {
        self.models.models.entry(name.clone()).or_default().versions.insert(version, state);
    }

    /// Notifies the agents of the end of their model's load.
    fn notify_agents(&mut self, name: Name, mut agents: Agents, is_loaded: bool) {
        self.loads.spawn_blocking(move || {
            agents.notify(if is_loaded { AgentAction::LoadComplete } else { AgentAction::LoadFail });
            // If the load has failed, the agents are dropped on this thread.
            let agents = is_loaded.then_some(agents);
            Event::AgentsTold { name, agents }
        });
    }

    fn unload_all(&mut self, done: oneshot::Sender<()>) {
        let mut agents = std::mem::take(&mut self.agents);
        let models = self.models.models.iter();
        let unloads: Vec<_> =
            models.map(|(name, versions)| unload(versions.built().collect(), agents.remove(name))).collect();
        tokio::spawn(async move {
            join_all(unloads).await;
            let _ = done.send(());
        });
    }

    fn publish(&self) {
        self.published.store(Arc::new(self.models.clone()));
    }
}
