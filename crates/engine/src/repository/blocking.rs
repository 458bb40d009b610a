//! What blocking threads do for the repository task: looking at directories, reading configurations, building copies.
//!
//! Each function returns a future, which may be dropped. A panic becomes an error where the model's name is known.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use inference::{Error, Name};
use lifecycle::{FoundModel, ModelFiles, ModelKey, ModelListing};
use tokio::task::spawn_blocking;

use super::{
    LoadParameters,
    freed_memory::ModelsChange,
    load::{LoadBase, LoadPlan, Loader, PlanError, Planned},
    repositories::Repositories,
    scan, stamps,
    watch::FileWatcher,
};
use crate::model::Model;

/// What the repositories have, and what is wrong with them.
#[derive(Default)]
pub(super) struct RepositoryListing {
    pub(super) models: ModelListing,
    /// Lines for the log.
    pub(super) problems: Vec<String>,
    /// The first error of a repository that cannot be read.
    pub(super) failure: Option<Error>,
}

/// Lists the repositories with the files of their models. Before, the watcher begins to watch their directories, so that
/// no change is lost.
pub(super) async fn list(
    repositories: Repositories,
    loader: Arc<Loader>,
    watcher: Option<Arc<FileWatcher>>,
) -> RepositoryListing {
    let list = move || {
        let directories = repositories.paths.keys().map(PathBuf::as_path);
        let mut problems = watcher.map(|watcher| watcher.watch(directories)).unwrap_or_default();
        let found = scan::list(&repositories);
        let models = found.models.into_iter();
        let models = models.map(|(key, directories)| (key, look_at(&loader, directories))).collect();
        let failure = found.unreadable.first().map(|(_, error)| error.clone());
        let unreadable = found.unreadable.into_iter().map(|(name, _)| name).collect();
        problems.extend(found.warnings);
        let models = ModelListing { models, repositories: found.repositories, unreadable };
        RepositoryListing { models, problems, failure }
    };
    spawn_blocking(list).await.unwrap_or_else(|panic| RepositoryListing {
        failure: Some(Error::internal(format!("the repositories could not be read: {panic}"))),
        ..RepositoryListing::default()
    })
}

/// Finds the models of a name, with their files. `serving` are the copies that serve under the name.
///
/// # Errors
/// A repository that cannot be read, if no other one has the model.
pub(super) async fn find(
    repositories: Repositories,
    loader: Arc<Loader>,
    name: Name,
    serving: Vec<(ModelKey, Arc<Model>)>,
) -> Result<Vec<(ModelKey, FoundModel)>, Error> {
    let find = move || {
        let find_one = |(key, directories)| {
            let mut found = look_at(&loader, directories);
            let copies = serving.iter().filter(|(of, copy)| *of == key && copy.is_outdated());
            found.faulty.extend(copies.map(|(_, copy)| copy.version()));
            (key, found)
        };
        Ok(scan::find(&repositories, &name)?.into_iter().map(find_one).collect())
    };
    spawn_blocking(find)
        .await
        .unwrap_or_else(|panic| Err(Error::internal(format!("the repositories could not be read: {panic}"))))
}

/// A model of the repositories.
pub(super) struct ExistingModel {
    /// In how many repositories it is.
    pub(super) directories: usize,
    pub(super) versions: BTreeSet<i64>,
}

/// The models of the repositories. `None` if a repository cannot be read.
pub(super) async fn existing(repositories: Repositories) -> Option<BTreeMap<ModelKey, ExistingModel>> {
    let read = move || {
        let found = scan::list(&repositories);
        if !found.unreadable.is_empty() {
            return None;
        }
        let model = |directories: Vec<Arc<PathBuf>>| ExistingModel {
            directories: directories.len(),
            versions: directories.iter().flat_map(|directory| scan::versions(directory)).collect(),
        };
        Some(found.models.into_iter().map(|(key, directories)| (key, model(directories))).collect())
    };
    spawn_blocking(read).await.ok().flatten()
}

/// Looks at the files of a model once more. `None` if they cannot be read.
pub(super) async fn check(loader: Arc<Loader>, directory: Arc<PathBuf>) -> Option<Arc<ModelFiles>> {
    let look = move || stamps::files(&directory, &loader.config_name(&directory));
    spawn_blocking(look).await.ok()?.ok().map(Arc::new)
}

/// Reads a configuration, notifies the agents of the load, and selects versions.
///
/// # Errors
/// Those of [`Loader::plan`].
pub(super) async fn plan(
    loader: Arc<Loader>,
    key: ModelKey,
    directory: Option<Arc<PathBuf>>,
    given: Arc<LoadParameters>,
) -> Result<Planned, PlanError> {
    let plan = move || loader.plan(&key, directory.as_deref().map(PathBuf::as_path), &given);
    spawn_blocking(plan).await.unwrap_or_else(|panic| {
        Err(Error::internal(format!("the model's configuration could not be read: {panic}")).into())
    })
}

/// Builds a copy of a version.
///
/// # Errors
/// Those of [`Loader::load`].
pub(super) async fn load(
    loader: Arc<Loader>,
    plan: Arc<LoadPlan>,
    version: i64,
    base: Option<LoadBase>,
) -> Result<Arc<Model>, Error> {
    let load = move || {
        let _change = ModelsChange::begin(loader.memory());
        loader.load(&plan, version, base.as_ref())
    };
    spawn_blocking(load).await.unwrap_or_else(|panic| {
        Err(Error::internal(format!("the backend panicked while loading the model: {panic}")))
    })
}

/// A model's directories and, if there is one, what is in it. Blocks.
fn look_at(loader: &Loader, directories: Vec<Arc<PathBuf>>) -> FoundModel {
    let mut found = FoundModel::default();
    if let [directory] = directories.as_slice() {
        found.is_incomplete = stamps::is_incomplete(directory);
        // What cannot be read is different from all that was read.
        found.files = Arc::new(stamps::files(directory, &loader.config_name(directory)).unwrap_or_default());
    }
    found.directories = directories;
    found
}
