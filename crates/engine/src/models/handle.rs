//! The handle of the repository task: sends it commands, and shows the latest table.
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use executor::notified_until;
use inference::ModelCommands;
use repository::{LoadParameters, private_directory, repositories::Repositories};
use tokio::sync::{Notify, mpsc, oneshot};
use vocabulary::{Error, Name};

use super::{
    command::{Command, Done},
    inferer::{AbsentModels, TableInferer},
    load::VersionLoader,
    survey::SurveyedModel,
    table::ModelTable,
    task::{RepositoryOptions, RepositoryTask},
};
use crate::model_state::IndexEntry;

/// The handle of the repository task.
pub(crate) struct Repository {
    commands: mpsc::Sender<Command>,
    table: Arc<ArcSwap<ModelTable>>,
    /// Notified when there is another table.
    table_changed: Arc<Notify>,
    inferer: Arc<TableInferer>,
    takes_overrides: bool,
}

impl Repository {
    /// Starts the task without loading a model. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// INVALID_ARG for the URL of a repository that breaks a rule.
    pub(crate) fn start(loader: VersionLoader, mut options: RepositoryOptions) -> Result<Self, Error> {
        // Each sender waits for its result. A short queue is enough; more senders wait.
        let (commands, inbox) = mpsc::channel(16);
        let (paths, opener) = (std::mem::take(&mut options.paths), options.opener.take());
        let repositories = Repositories::new(paths, options.namespacing, opener)?;
        let table = Arc::new(ArcSwap::default());
        let inferer = Arc::new(TableInferer::new(&table));
        let loader = loader.with_inferer(inferer.clone());
        let takes_overrides = options.takes_overrides;
        let table_changed = Arc::<Notify>::default();
        let published = (table.clone(), table_changed.clone());
        let task = RepositoryTask::new(Arc::new(loader), &options, repositories, published);
        // Only then can a server of these options have left something.
        if takes_overrides {
            tokio::task::spawn_blocking(private_directory::remove_left_behind);
        }
        // The task ends when this handle, the last sender, is dropped.
        tokio::spawn(task.run(inbox));
        Ok(Self { commands, table, table_changed, inferer, takes_overrides })
    }

    /// Lets backends load models. Must be called once.
    pub(crate) fn set_model_loader(&self, model_loader: Arc<dyn ModelCommands>) {
        self.inferer.set_model_loader(model_loader);
    }

    /// Lets requests of models reach models that are not in memory. Must be called at most once.
    pub(crate) fn set_absent_models(&self, absent: Arc<dyn AbsentModels>) {
        self.inferer.set_absent_models(absent);
    }

    /// Loads every model. Returns when each model is ready or has failed.
    ///
    /// # Errors
    /// A repository that cannot be read. A model that fails is not an error of this function: the table contains its
    /// reason.
    pub(crate) async fn load_all(&self) -> Result<(), Error> {
        self.ask(|done| Command::LoadAll { done }).await?
    }

    /// Loads or reloads a model. Returns when it serves or has failed.
    ///
    /// # Errors
    /// Why the model does not serve what was asked for. What it served before, it still serves. UNSUPPORTED if `given`
    /// brings something and the options refuse that.
    pub(crate) async fn load(&self, name: &str, given: LoadParameters) -> Result<(), Error> {
        if !self.takes_overrides && !given.is_empty() {
            return Err(Error::unsupported(format!(
                "failed to load '{name}', the server takes no configuration or files with a load \
                 (--allow-load-overrides=false)"
            )));
        }
        let name = Name::new(name);
        self.ask(|done| Command::Load { name, given, done }).await?
    }

    /// Unloads a model; with `dependents`, the members of an ensemble too, except for those that were loaded by their own
    /// names or that other models need. Returns when it accepts no more requests.
    ///
    /// # Errors
    /// The server is stopping.
    pub(crate) async fn unload(&self, name: &str, dependents: bool) -> Result<(), Error> {
        let name = Name::new(name);
        self.ask(|done| Command::Unload { name, dependents, done }).await?
    }

    /// Refuses all commands that change models from now on, and those that have not been answered.
    pub(crate) async fn refuse_commands(&self) {
        // Without the task there is nothing to refuse.
        let _ = self.ask(|done| Command::RefuseCommands { done }).await;
    }

    /// Does not wait for loads any more, after commands have been refused. Returns whether threads still work on loads or
    /// read repositories.
    pub(crate) async fn abandon_loads(&self) -> bool {
        self.ask(|done| Command::AbandonLoads { done }).await.unwrap_or(false)
    }

    /// Ends every model that has been built, and accepts no more commands. Returns when their last requests have ended.
    pub(crate) async fn unload_all(&self) {
        // Without the task there is nothing to end.
        let _ = self.ask(|done| Command::UnloadAll { done }).await;
    }

    /// One line for each version, for each model without versions, and for each model that was never loaded.
    ///
    /// # Errors
    /// The task has ended.
    pub(crate) async fn index(&self, ready_only: bool) -> Result<Vec<IndexEntry>, Error> {
        self.ask(|done| Command::Index { ready_only, done }).await
    }

    /// Looks at the models of the repositories, or at those of one name, without loading them.
    ///
    /// # Errors
    /// A repository that cannot be read.
    pub(crate) async fn survey(&self, only: Option<Name>) -> Result<BTreeMap<Name, SurveyedModel>, Error> {
        self.ask(|done| Command::Survey { only, done }).await?
    }

    /// Adds a repository. `mapped` has the names of directories by the names of their models.
    ///
    /// # Errors
    /// ALREADY_EXISTS for a repository that is known, INVALID_ARG for one that is no directory.
    pub(crate) async fn register(&self, path: PathBuf, mapped: BTreeMap<Name, String>) -> Result<(), Error> {
        self.ask(|done| Command::Register { path, mapped, done }).await?
    }

    /// Removes a repository. Its models stay as they are.
    ///
    /// # Errors
    /// INVALID_ARG for a repository that is not known.
    pub(crate) async fn unregister(&self, path: PathBuf) -> Result<(), Error> {
        self.ask(|done| Command::Unregister { path, done }).await?
    }

    /// Looks for changes now. Returns when the listing has been read; loads that follow are not waited for.
    ///
    /// # Errors
    /// The server is stopping.
    pub(crate) async fn poll(&self) -> Result<(), Error> {
        self.ask(|done| Command::Poll { done }).await?
    }

    /// The latest snapshot.
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<ModelTable>> {
        self.table.load()
    }

    /// Returns when that holds for the latest snapshot.
    pub(crate) async fn until(&self, holds: impl Fn(&ModelTable) -> bool) {
        notified_until(&self.table_changed, || holds(&self.table())).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Done<T>) -> Command) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        let stopped = || Error::internal("the model repository has stopped");
        self.commands.send(command(done)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())
    }
}
