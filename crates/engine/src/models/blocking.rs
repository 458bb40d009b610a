//! What runs beside the repository task: looking at repositories, reading configurations, building copies. Blocking threads
//! look at files; stores are asked on the runtime.
//!
//! Each function returns a future, which may be dropped. A panic becomes an error where the model's name is known.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use inference::repository::LocalModelFiles;
use lifecycle::{FoundModel, ModelFiles, ModelKey, ModelListing, ModelLocation};
use repository::{
    LoadParameters,
    config_file::PlanError,
    remote::{self, LISTING_PATIENCE, PlanSource, RemoteModel, RemoteModels, RemoteSource, StoreWait},
    repositories::Repositories,
    scan::{self, FoundPlace},
    stamps,
    watch::FileWatcher,
};
use tokio::task::spawn_blocking;
use vocabulary::{Error, Name};

use super::{
    load::{LoadedModel, VersionLoader},
    plan::{LoadBase, LoadPlan, Planned},
};
use crate::memory_phase::MemoryPhase;
use crate::models::loaded_version::LoadedVersion;

/// What the repositories have, and what is wrong with them.
#[derive(Default)]
pub(super) struct RepositoryListing {
    pub(super) models: ModelListing,
    /// Lines for the log.
    pub(super) problems: Vec<String>,
    /// The errors of repositories that cannot be read.
    pub(super) failures: Vec<Error>,
}

impl RepositoryListing {
    fn failed(error: Error) -> Self {
        Self { failures: vec![error], ..Self::default() }
    }
}

/// Why the repositories are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingPurpose {
    /// All models are loaded: wait for each store. A path of a store without objects is an error.
    Start,
    /// Changes are looked for. What is not there any more was deleted.
    Poll,
    /// The same, only when somebody asks and waits for the result.
    OnDemand,
}

/// Lists the repositories with the files of their models. Before, the watcher begins to watch their directories, so that
/// no change is lost.
pub(super) async fn list(
    repositories: Repositories,
    loader: Arc<VersionLoader>,
    watcher: Option<Arc<FileWatcher>>,
    purpose: ListingPurpose,
    wait: StoreWait,
) -> RepositoryListing {
    let remote = match wait.of(list_remote(repositories.remote(), purpose)).await {
        Ok(remote) => remote,
        Err(ended) => return RepositoryListing::failed(ended),
    };
    let list = move || {
        let mut problems =
            watcher.map(|watcher| watcher.watch(repositories.directories())).unwrap_or_default();
        let found = scan::list(&repositories, remote);
        let models = found.models.into_iter();
        let models = models.map(|(key, places)| (key, look_at(&loader, places))).collect();
        let (unreadable, failures) = found.unreadable.into_iter().unzip();
        problems.extend(found.warnings);
        let models = ModelListing { models, repositories: found.repositories, unreadable };
        RepositoryListing { models, problems, failures }
    };
    spawn_blocking(list).await.unwrap_or_else(|panic| {
        RepositoryListing::failed(Error::internal(format!("the repositories could not be read: {panic}")))
    })
}

type RemoteListings = BTreeMap<Name, Result<Arc<RemoteModels>, Error>>;

async fn list_remote(sources: Vec<Arc<RemoteSource>>, purpose: ListingPurpose) -> RemoteListings {
    let patience = match purpose {
        ListingPurpose::Start | ListingPurpose::OnDemand => None,
        ListingPurpose::Poll => Some(LISTING_PATIENCE),
    };
    let mut listed = remote::models_of(sources.clone(), patience).await;
    if purpose == ListingPurpose::Start {
        for source in sources {
            if let Some(Ok(models)) = listed.get(source.name())
                && models.is_empty()
                && let Err(error) = source.check().await
            {
                listed.insert(source.name().clone(), Err(error));
            }
        }
    }
    listed
}

/// Finds the models of a name, with their files. `serving` are the copies that serve under the name.
///
/// # Errors
/// A repository that cannot be read, if no other one has the model.
pub(super) async fn find(
    repositories: Repositories,
    loader: Arc<VersionLoader>,
    name: Name,
    serving: Vec<(ModelKey, Arc<LoadedVersion>)>,
    wait: StoreWait,
) -> Result<Vec<(ModelKey, FoundModel)>, Error> {
    let asked = repositories.known.keys().filter_map(|repository| {
        let source = repositories.remote_of(repository)?.clone();
        let directory = repositories.directory_of(repository, &name)?.to_owned();
        Some(async move { (source.name().clone(), source.objects(&directory).await) })
    });
    let remote = wait.of(join_all(asked.collect::<Vec<_>>())).await?.into_iter().collect();
    let find = move || {
        let find_one = |(key, places)| {
            let mut found = look_at(&loader, places);
            let copies = serving.iter().filter(|(of, copy)| *of == key && copy.work().is_outdated());
            found.faulty.extend(copies.map(|(_, copy)| copy.model().version()));
            (key, found)
        };
        Ok(scan::find(&repositories, remote, &name)?.into_iter().map(find_one).collect())
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

/// The models of the repositories. `None` if a repository cannot be read, or takes long.
pub(super) async fn existing(
    repositories: Repositories,
    wait: StoreWait,
) -> Option<BTreeMap<ModelKey, ExistingModel>> {
    let patience: Option<Duration> = Some(LISTING_PATIENCE);
    let remote = wait.of(remote::models_of(repositories.remote(), patience)).await.ok()?;
    let read = move || {
        let found = scan::list(&repositories, remote);
        if !found.unreadable.is_empty() {
            return None;
        }
        let model = |places: Vec<FoundPlace>| ExistingModel {
            directories: places.len(),
            versions: places.iter().flat_map(versions_in).collect(),
        };
        Some(found.models.into_iter().map(|(key, places)| (key, model(places))).collect())
    };
    spawn_blocking(read).await.ok().flatten()
}

/// Looks at the files of a model once more. `None` if they cannot be read.
pub(super) async fn check(loader: Arc<VersionLoader>, place: Arc<ModelLocation>) -> Option<Arc<ModelFiles>> {
    let directory = &place.directory;
    let look = {
        let directory = directory.clone();
        move || stamps::files(&directory, &loader.configs().config_name(&directory))
    };
    spawn_blocking(look).await.ok()?.ok().map(Arc::new)
}

/// The same for a model in an object store. If the store cannot be asked, the files are taken as they were `before`: no
/// change is known, and what was copied was checked.
pub(super) async fn check_remote(
    loader: Arc<VersionLoader>,
    source: Arc<RemoteSource>,
    directory: String,
    before: Option<Arc<ModelFiles>>,
    wait: StoreWait,
) -> Option<Arc<ModelFiles>> {
    let files =
        move |objects: &[_]| Arc::new(stamps::of_objects(objects, &loader.configs().config_name_of(objects)));
    match wait.of(source.objects(&directory)).await.and_then(|objects| objects) {
        Ok(objects) => Some(files(&objects)),
        Err(_) => before,
    }
}

/// Where the files of a load are.
pub(super) enum LoadPlace {
    /// They were given.
    Given,
    Directory(PathBuf),
    Remote {
        source: Arc<RemoteSource>,
        directory: String,
    },
}

/// Reads a configuration, notifies the agents of the load, and selects versions.
///
/// # Errors
/// Those of [`VersionLoader::plan`], and of an object store.
pub(super) async fn plan(
    loader: Arc<VersionLoader>,
    key: ModelKey,
    place: LoadPlace,
    given: Arc<LoadParameters>,
    wait: StoreWait,
) -> Result<Planned, PlanError> {
    match place {
        LoadPlace::Given => plan_here(loader, key, None, None, given).await,
        LoadPlace::Directory(directory) => plan_here(loader, key, Some(directory), None, given).await,
        LoadPlace::Remote { source, directory } => {
            let model = wait.clone().of(RemoteModel::find(source, directory)).await??;
            let shared = wait.clone().of(model.fetch(&BTreeSet::new())).await??;
            let planned = {
                let (loader, key, given) = (loader.clone(), key.clone(), given.clone());
                let model = model.clone();
                spawn_blocking(move || loader.plan_remote(&key, &model, shared.path(), &given))
            };
            if let Some(plan) = planned.await.unwrap_or_else(|panic| Err(not_read(&panic)))? {
                return Ok(Planned { plan, agents: None, files: Default::default() });
            }
            let copy = wait.of(model.fetch_all()).await??;
            let directory = copy.path().to_path_buf();
            plan_here(loader, key, Some(directory), Some(copy), given).await
        }
    }
}

async fn plan_here(
    loader: Arc<VersionLoader>,
    key: ModelKey,
    directory: Option<PathBuf>,
    copy: Option<Arc<dyn LocalModelFiles>>,
    given: Arc<LoadParameters>,
) -> Result<Planned, PlanError> {
    let plan = move || {
        let mut planned = loader.plan(&key, directory.as_deref(), &given)?;
        planned.files._copy = copy;
        Ok(planned)
    };
    spawn_blocking(plan).await.unwrap_or_else(|panic| Err(not_read(&panic)))
}

fn not_read(panic: &tokio::task::JoinError) -> PlanError {
    Error::internal(format!("the model's configuration could not be read: {panic}")).into()
}

/// A copy that has been built.
pub(super) struct BuiltVersion {
    pub(super) model: LoadedModel,
    /// The files that the copy has of its own. They stay until the copy has ended.
    pub(super) files: Option<Arc<dyn LocalModelFiles>>,
}

/// Builds a copy of a version.
///
/// # Errors
/// Those of [`VersionLoader::load`], and of an object store.
pub(super) async fn load(
    loader: Arc<VersionLoader>,
    plan: Arc<LoadPlan>,
    version: i64,
    base: Option<LoadBase>,
    wait: StoreWait,
) -> Result<BuiltVersion, Error> {
    let base = base.filter(|base| plan.is_update_of(base));
    let files = match (&plan.source, &base) {
        (PlanSource::Directory(_), _) => None,
        // The copy that is updated goes on with its files.
        (PlanSource::Remote(_), Some(base)) => base.files.clone(),
        (PlanSource::Remote(model), None) => Some(wait.of(model.fetch(&BTreeSet::from([version]))).await??),
    };
    let load = move || {
        let _change = loader.memory().map(|functions| MemoryPhase::begin(functions.models_change));
        let directory: &Path = match (&plan.source, &files) {
            (_, Some(copy)) => copy.path(),
            (PlanSource::Directory(directory), None) => directory,
            (PlanSource::Remote(_), None) => return Err(Error::internal("the model was not copied")),
        };
        let model = loader.load(&plan, version, directory, base.as_ref())?;
        Ok(BuiltVersion { model, files })
    };
    spawn_blocking(load).await.unwrap_or_else(|panic| {
        Err(Error::internal(format!("the backend panicked while loading the model: {panic}")))
    })
}

/// The versions at a place. Blocks.
fn versions_in(found: &FoundPlace) -> BTreeSet<i64> {
    match &found.objects {
        Some(objects) => objects.iter().filter_map(remote::version_of).collect(),
        None => scan::versions(&found.place.directory).into_iter().collect(),
    }
}

/// A model's places and, if there is one, what is in it. Blocks.
fn look_at(loader: &VersionLoader, places: Vec<FoundPlace>) -> FoundModel {
    let mut found = FoundModel::default();
    if let [FoundPlace { place, objects }] = places.as_slice() {
        (found.is_incomplete, found.files) = match objects {
            Some(objects) => {
                let files = stamps::of_objects(objects, &loader.configs().config_name_of(objects));
                (stamps::are_incomplete(objects), Arc::new(files))
            }
            None => {
                let directory = &place.directory;
                // What cannot be read is different from all that was read.
                let files =
                    stamps::files(directory, &loader.configs().config_name(directory)).unwrap_or_default();
                (stamps::is_incomplete(directory), Arc::new(files))
            }
        };
    }
    found.places = places.into_iter().map(|found| found.place).collect();
    found
}
