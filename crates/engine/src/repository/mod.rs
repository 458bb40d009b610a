//! The task that alone may change the state of a model. Commands come in, snapshots go out.
//!
//! Reading configurations and loading happen on blocking threads, as many at a time as `--model-load-thread-count` says;
//! each result comes back here as an event. Whoever wants to know a model's state reads the latest [`ModelTable`].
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

/// How others reach the repository.
pub(crate) struct Repository {
    commands: mpsc::Sender<Command>,
    table: Arc<ArcSwap<ModelTable>>,
}

/// What the repository is told to do.
enum Command {
    /// Load every model of every repository.
    LoadAll { done: oneshot::Sender<Result<(), Error>> },
    /// End every model that has been built.
    UnloadAll { done: oneshot::Sender<()> },
}

impl Repository {
    /// Starts the task; no model is loaded yet. Must be called in a tokio runtime.
    pub(crate) fn start(loader: Loader, repositories: Vec<PathBuf>, load_threads: usize) -> Self {
        // A command is rare and its sender waits for the answer: a short queue is enough.
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
        // Ends when the last sender, this handle, is gone.
        tokio::spawn(keeper.run(inbox));
        Self { commands, table }
    }

    /// Loads every model; returns when each is ready or has failed.
    ///
    /// # Errors
    /// A repository that cannot be read. That models fail is not an error here: the table tells.
    pub(crate) async fn load_all(&self) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        let stopped = |_| Error::internal("the model repository has stopped");
        self.commands.send(Command::LoadAll { done }).await.map_err(|_| stopped(()))?;
        answer.await.map_err(|_| stopped(()))?
    }

    /// Ends every model that has been built; returns when their last requests have ended. The table stays as it is: who
    /// asks for a model finds one that takes no requests.
    pub(crate) async fn unload_all(&self) {
        let (done, answer) = oneshot::channel();
        // Without its task the repository has nothing that could be ended.
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
    /// Models some of whose versions are still being loaded.
    loading: BTreeMap<Name, Loading>,
    /// Who looks after the models that are loaded.
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

/// Something that took time has come to an end.
enum Event {
    /// The configurations of these models have been read, or not.
    Polled(Vec<(Name, Result<Planned, PlanError>)>),
    /// A version has been loaded, or not.
    Loaded { name: Name, version: i64, result: Result<Arc<Model>, Error> },
    /// Versions that were loaded in vain are gone. The agents of their model have not heard of it yet.
    Discarded { name: Name, agents: Option<Agents> },
    /// The agents of a model know how its load has ended. They stay if it is loaded.
    AgentsTold { name: Name, agents: Option<Agents> },
}

impl RepositoryTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            // Both are cancel-safe: what is not returned stays in the queue or the set.
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
                    // The load's own panics are caught where the name is known.
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

    /// Reads the configurations of these models. They are loaded in the order of their names, whichever is read first:
    /// so nothing is loaded before all have been read.
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

    /// As Triton, the versions of a model come into service together, or none of them does.
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

    /// Puts the versions that have been loaded into service.
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

    /// Ends the versions that have been loaded, because another one of the model has failed.
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

    /// Tells the agents how the load of their model has ended.
    fn notify_agents(&mut self, name: Name, mut agents: Agents, is_loaded: bool) {
        self.loads.spawn_blocking(move || {
            agents.notify(if is_loaded { AgentAction::LoadComplete } else { AgentAction::LoadFail });
            // If it has failed, they leave here and now.
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
