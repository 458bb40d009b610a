//! The task that alone may change the state of a model. Commands come in, snapshots go out.
//!
//! Loading itself happens on blocking threads, as many at a time as `--model-load-thread-count` says; each result comes
//! back here as an event. Whoever wants to know a model's state reads the latest [`Table`].
use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use inference::{Error, Name};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use crate::model::Model;

mod files;
mod fingerprint;
mod load;
mod scan;
mod strategy;
mod table;

pub(crate) use fingerprint::Fingerprint;
pub(crate) use load::Loader;
pub(crate) use table::Table;
pub use table::{IndexEntry, ModelState};
use table::{Version, Versions};

/// How others reach the repository.
pub(crate) struct Repository {
    commands: mpsc::Sender<Command>,
    table: Arc<ArcSwap<Table>>,
}

/// What the repository is told to do.
enum Command {
    /// Load every model of every repository.
    LoadAll { done: oneshot::Sender<Result<(), Error>> },
}

impl Repository {
    /// Starts the task; no model is loaded yet. Must be called in a tokio runtime.
    pub(crate) fn start(loader: Loader, repositories: Vec<PathBuf>, load_threads: usize) -> Self {
        // A command is rare and its sender waits for the answer: a short queue is enough.
        let (commands, inbox) = mpsc::channel(16);
        let table = Arc::new(ArcSwap::default());
        let keeper = Keeper {
            loader: Arc::new(loader),
            repositories,
            threads: Arc::new(Semaphore::new(load_threads)),
            models: Table::default(),
            published: table.clone(),
            loads: JoinSet::new(),
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
        let gone = |_| Error::internal("the model repository has stopped");
        self.commands.send(Command::LoadAll { done }).await.map_err(|_| gone(()))?;
        answer.await.map_err(|_| gone(()))?
    }

    /// The latest snapshot.
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }
}

/// The task's own state.
struct Keeper {
    loader: Arc<Loader>,
    repositories: Vec<PathBuf>,
    threads: Arc<Semaphore>,
    models: Table,
    published: Arc<ArcSwap<Table>>,
    loads: JoinSet<Loaded>,
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
}

/// A load that has come to an end.
struct Loaded {
    name: Name,
    version: i64,
    result: Result<Arc<Model>, Error>,
}

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            // Both are cancel-safe: what is not returned stays in the queue or the set.
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::LoadAll { done }) => self.load_all(done),
                    None => return,
                },
                Some(loaded) = self.loads.join_next() => match loaded {
                    Ok(loaded) => self.settle(loaded),
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
        for (name, places) in listing.duplicated {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            log::error!(
                "failed to poll model '{name}': not unique across all model repositories ({})",
                places.join(", ")
            );
            self.no_version(name, "model appears in two or more repositories".to_owned());
        }
        for (name, directory) in listing.unique {
            match self.loader.plan(&name, &directory) {
                Ok(plan) => self.load(&name, &Arc::new(plan)),
                Err(error) => {
                    log::error!("Poll failed for model directory '{name}': {error}");
                    self.no_version(name, error.with_code());
                }
            }
        }
        self.waiting.push(done);
        self.publish();
    }

    fn no_version(&mut self, name: Name, problem: String) {
        self.models.models.insert(name, Versions { versions: Default::default(), problem: Some(problem) });
    }

    fn load(&mut self, name: &Name, plan: &Arc<load::Plan>) {
        let model = self.models.models.entry(name.clone()).or_default();
        for &version in plan.versions() {
            log::info!("loading: {name}:{version}");
            model.versions.insert(version, Version::Loading);
            let (loader, plan, threads, name) =
                (self.loader.clone(), plan.clone(), self.threads.clone(), name.clone());
            self.loads.spawn(async move {
                // The semaphore is never closed.
                let _permit = threads.acquire_owned().await;
                let loaded = tokio::task::spawn_blocking(move || loader.load(&plan, version)).await;
                let result = loaded.unwrap_or_else(|panic| {
                    Err(Error::internal(format!("the backend panicked while loading the model: {panic}")))
                });
                Loaded { name, version, result }
            });
        }
    }

    fn settle(&mut self, Loaded { name, version, result }: Loaded) {
        let state = match result {
            Ok(model) => {
                log::info!("successfully loaded '{name}' version {version}");
                Version::Ready(model)
            }
            Err(error) => {
                log::error!("failed to load '{name}' version {version}: {}", error.with_code());
                Version::Unavailable(error.with_code())
            }
        };
        self.models.models.entry(name).or_default().versions.insert(version, state);
        self.publish();
    }

    fn publish(&self) {
        self.published.store(Arc::new(self.models.clone()));
    }
}
