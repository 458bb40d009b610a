//! Repositories in object stores, as the repository task uses them.
//!
//! A store may be slow or hang. So one listing of a repository runs at a time, those who need it share it, and a look
//! waits for it no longer than it must. Stopping the server and unloading a model end what waits for a store.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use config::{FileEntry, VersionDirectory, version_directory};
use futures_util::future::join_all;
use inference::{
    lock::Mutex,
    repository::{LocalModelFiles, ObjectKind, ObjectRepository, RepositoryOpener, StoredObject},
};
use tokio::{
    sync::{OnceCell, watch},
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use vocabulary::{Error, Name};

/// The objects of each model, by the model's directory.
pub type RemoteModels = BTreeMap<String, Vec<StoredObject>>;

/// How long looks at all repositories wait for one listing of a store, all of them together.
pub const LISTING_PATIENCE: Duration = Duration::from_secs(5);

/// A repository in an object store. It is opened when it is needed first, again if that fails.
pub struct RemoteSource {
    access: Arc<StoreAccess>,
    listing: Mutex<ListingState>,
}

struct StoreAccess {
    name: Name,
    opener: Arc<dyn RepositoryOpener>,
    opened: OnceCell<Arc<dyn ObjectRepository>>,
}

#[derive(Default)]
struct ListingState {
    running: Option<RunningListing>,
    /// Why the last listing failed, if it did.
    failure: Option<Error>,
}

type ListingResult = Result<Arc<RemoteModels>, Error>;

/// A listing that has not been taken. Its task ends with it.
struct RunningListing {
    result: watch::Receiver<Option<ListingResult>>,
    task: AbortHandle,
    begun: Instant,
}

impl Drop for RunningListing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteSource").field(&self.access.name).finish()
    }
}

impl RemoteSource {
    /// A repository that is not open yet. `name` is the name that the opener gives to it.
    pub(crate) fn new(name: Name, opener: Arc<dyn RepositoryOpener>) -> Self {
        let access = StoreAccess { name, opener, opened: OnceCell::new() };
        Self { access: Arc::new(access), listing: Mutex::default() }
    }

    /// The URL.
    pub fn name(&self) -> &Name {
        &self.access.name
    }

    /// Asks whether there is an object in the repository.
    ///
    /// # Errors
    /// As [`ObjectRepository::check`].
    pub async fn check(&self) -> Result<(), Error> {
        self.access.open().await?.check().await
    }

    /// The objects of one model.
    ///
    /// # Errors
    /// As [`ObjectRepository::objects`].
    pub async fn objects(&self, model: &str) -> Result<Vec<StoredObject>, Error> {
        self.access.open().await?.objects(model).await
    }

    /// A local copy of these objects.
    ///
    /// # Errors
    /// As [`ObjectRepository::fetch`].
    pub(crate) async fn fetch(
        &self,
        model: &str,
        objects: &[StoredObject],
    ) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.access.open().await?.fetch(model, objects).await
    }

    /// The models, by a listing that begins now, or that is running. If it takes longer than `patience`, it goes on, and
    /// a later call returns its result. No call waits for a listing that has taken longer.
    ///
    /// # Errors
    /// Why the repository cannot be listed; if the listing takes too long, why the last one has failed.
    pub(crate) async fn models(&self, patience: Option<Duration>) -> ListingResult {
        let (mut result, begun) = {
            let mut listing = self.listing.lock();
            let running = listing.running.get_or_insert_with(|| self.begin());
            (running.result.clone(), running.begun)
        };
        let ended = async { result.wait_for(Option::is_some).await.is_ok() };
        let is_in_time = match patience {
            Some(patience) => timeout_at(begun + patience, ended).await.is_ok(),
            None => {
                ended.await;
                true
            }
        };
        let mut listing = self.listing.lock();
        if !is_in_time {
            let url = &self.access.name;
            let secs = LISTING_PATIENCE.as_secs();
            let slow = || {
                Error::unavailable(format!("the listing of '{url}' takes longer than {secs} s; it goes on"))
            };
            return Err(listing.failure.clone().unwrap_or_else(slow));
        }
        let lost = || Err(Error::internal(format!("the listing of '{}' was lost", self.access.name)));
        let result = result.borrow().clone().unwrap_or_else(lost);
        // Somebody else may have taken it, and begun another one.
        if listing.running.as_ref().is_some_and(RunningListing::is_over) {
            listing.running = None;
        }
        listing.failure = result.as_ref().err().cloned();
        result
    }

    fn begin(&self) -> RunningListing {
        let access = self.access.clone();
        let (done, result) = watch::channel(None);
        let list = async move {
            let listed = match access.open().await {
                Ok(repository) => repository.models().await.map(Arc::new),
                Err(error) => Err(error),
            };
            // Nobody may wait any more.
            let _ = done.send(Some(listed));
        };
        RunningListing { result, task: tokio::spawn(list).abort_handle(), begun: Instant::now() }
    }
}

impl RunningListing {
    fn is_over(&self) -> bool {
        self.result.borrow().is_some() || self.result.has_changed().is_err()
    }
}

impl StoreAccess {
    async fn open(&self) -> Result<&Arc<dyn ObjectRepository>, Error> {
        self.opened.get_or_try_init(|| self.opener.open(&self.name)).await
    }
}

/// The models of several repositories, which are asked at the same time.
pub async fn models_of(
    sources: Vec<Arc<RemoteSource>>,
    patience: Option<Duration>,
) -> BTreeMap<Name, ListingResult> {
    let listed = sources.iter().map(|source| source.models(patience));
    let listed = join_all(listed).await;
    sources.iter().map(|source| source.name().clone()).zip(listed).collect()
}

/// A model in an object store, with the objects that its load uses.
#[derive(Clone)]
pub struct RemoteModel {
    pub(crate) source: Arc<RemoteSource>,
    /// The model's directory in the repository.
    pub(crate) directory: String,
    pub(crate) objects: Arc<[StoredObject]>,
}

impl RemoteModel {
    /// The model in a directory of a repository, as it is now.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such directory. Otherwise as [`ObjectRepository::objects`].
    pub async fn find(source: Arc<RemoteSource>, directory: String) -> Result<Self, Error> {
        let objects: Arc<[_]> = source.objects(&directory).await?.into();
        let model = Self { source, directory, objects };
        if model.objects.is_empty() {
            let url = model.url();
            return Err(Error::not_found(format!("directory or file does not exist at {}", url.display())));
        }
        Ok(model)
    }

    /// The URL of the model's directory.
    pub fn url(&self) -> PathBuf {
        model_url(self.source.name(), &self.directory)
    }

    /// The objects that these versions use: their own, and those of the model.
    fn used_by(&self, versions: &BTreeSet<i64>) -> Vec<StoredObject> {
        let is_used =
            |object: &&StoredObject| version_of(object).is_none_or(|version| versions.contains(&version));
        self.objects.iter().filter(is_used).cloned().collect()
    }

    /// A local directory with these versions, and with the files that belong to no version.
    ///
    /// # Errors
    /// As [`ObjectRepository::fetch`].
    pub async fn fetch(&self, versions: &BTreeSet<i64>) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.source.fetch(&self.directory, &self.used_by(versions)).await
    }

    /// A local directory with all objects.
    ///
    /// # Errors
    /// As [`ObjectRepository::fetch`].
    pub async fn fetch_all(&self) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.source.fetch(&self.directory, &self.objects).await
    }

    /// The versions and what is in the directory of each. Logs names that are almost versions.
    pub fn versions(&self) -> BTreeMap<i64, Vec<FileEntry>> {
        let mut versions: BTreeMap<i64, BTreeMap<&str, bool>> = BTreeMap::new();
        let mut ignored = BTreeSet::new();
        for object in &*self.objects {
            let (top, below) = match object.path.split_once('/') {
                Some((top, below)) => (top, Some(below)),
                None if object.kind == ObjectKind::Directory => (object.path.as_str(), None),
                None => continue,
            };
            match version_directory(top) {
                VersionDirectory::Version(version) => {
                    let entries = versions.entry(version).or_default();
                    if let Some(below) = below {
                        let (name, rest) =
                            below.split_once('/').map_or((below, None), |(name, rest)| (name, Some(rest)));
                        let is_directory = rest.is_some() || object.kind == ObjectKind::Directory;
                        *entries.entry(name).or_default() |= is_directory;
                    }
                }
                VersionDirectory::Ignored(warning) => ignored.extend(warning),
            }
        }
        ignored.iter().for_each(|warning| log::warn!("{warning}"));
        let entries = |entries: BTreeMap<&str, bool>| {
            let entry =
                |(name, is_directory): (&str, bool)| FileEntry { name: name.to_owned(), is_directory };
            entries.into_iter().map(entry).collect()
        };
        versions.into_iter().map(|(version, found)| (version, entries(found))).collect()
    }
}

/// The URL of a model's directory in a repository.
pub(crate) fn model_url(repository: &Name, directory: &str) -> PathBuf {
    PathBuf::from(format!("{repository}/{directory}"))
}

/// Where the files of a load are.
pub enum PlanSource {
    /// In the repository, or where an agent has put them.
    Directory(PathBuf),
    /// In an object store. Each version is fetched when it is loaded.
    Remote(RemoteModel),
}

impl PlanSource {
    /// Whether both are the same directory, or the same model of a store.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(one), Self::Directory(other)) => one == other,
            (Self::Remote(one), Self::Remote(other)) => one.url() == other.url(),
            (Self::Directory(_), Self::Remote(_)) | (Self::Remote(_), Self::Directory(_)) => false,
        }
    }
}

/// The version that an object belongs to; `None` for what all versions use.
pub fn version_of(object: &StoredObject) -> Option<i64> {
    let top = match object.path.split_once('/') {
        Some((top, _)) => top,
        None if object.kind == ObjectKind::Directory => &object.path,
        None => return None,
    };
    match version_directory(top) {
        VersionDirectory::Version(version) => Some(version),
        VersionDirectory::Ignored(_) => None,
    }
}

/// Ends work that waits for stores: for one model, or for all.
#[derive(Clone)]
pub struct StoreWait(watch::Receiver<Option<Error>>);

/// The other end of [`StoreWait`]. Dropping it ends nothing.
pub struct StoreWaitEnd(watch::Sender<Option<Error>>);

impl Default for StoreWaitEnd {
    /// The end of no work yet.
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl StoreWaitEnd {
    /// What waits, and what waits later, fails with this error.
    pub fn end(&self, error: Error) {
        self.0.send_replace(Some(error));
    }

    /// Whether it has ended the work.
    pub fn has_ended(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether anything may wait.
    pub fn is_used(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// What the work waits with.
    pub fn wait(&self) -> StoreWait {
        StoreWait(self.0.subscribe())
    }
}

impl StoreWait {
    /// The result of a future that waits for a store.
    ///
    /// # Errors
    /// The error with which the wait was ended.
    pub async fn of<T>(mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let ended = async move {
            match self.0.wait_for(Option::is_some).await.map(|error| error.clone()) {
                Ok(Some(error)) => error,
                Ok(None) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // What needs no store, or has its answer, is not ended.
            result = work => Ok(result),
            error = ended => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use inference::repository::StoreFuture;
    use tokio::sync::Semaphore;

    use super::*;

    /// A store whose listings wait for permits.
    struct SlowStore(Semaphore);

    impl ObjectRepository for SlowStore {
        fn check(&self) -> StoreFuture<'_, ()> {
            unreachable!("nobody asks")
        }

        fn models(&self) -> StoreFuture<'_, BTreeMap<String, Vec<StoredObject>>> {
            Box::pin(async {
                self.0.acquire().await.unwrap().forget();
                Ok(BTreeMap::new())
            })
        }

        fn objects<'a>(&'a self, _model: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
            unreachable!("nobody asks")
        }

        fn fetch<'a>(
            &'a self,
            _model: &'a str,
            _objects: &'a [StoredObject],
        ) -> StoreFuture<'a, Arc<dyn LocalModelFiles>> {
            unreachable!("nobody asks")
        }
    }

    /// Opens one store.
    struct OneStore(Arc<SlowStore>);

    impl RepositoryOpener for OneStore {
        fn name(&self, _path: &str) -> Option<Result<Name, Error>> {
            None
        }

        fn open<'a>(&'a self, _name: &'a str) -> StoreFuture<'a, Arc<dyn ObjectRepository>> {
            let store: Arc<dyn ObjectRepository> = self.0.clone();
            Box::pin(async { Ok(store) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_wait_for_one_listing_no_longer_than_their_patience_together() {
        let store = Arc::new(SlowStore(Semaphore::new(0)));
        let source = RemoteSource::new(Name::new("s3://b/models"), Arc::new(OneStore(store.clone())));
        let begun = Instant::now();
        let look = || source.models(Some(LISTING_PATIENCE));
        for _ in 0..3 {
            let error = look().await.unwrap_err();
            assert!(error.message.ends_with("takes longer than 5 s; it goes on"), "{error}");
            assert_eq!(begun.elapsed(), LISTING_PATIENCE);
        }
        store.0.add_permits(1);
        assert!(source.models(None).await.unwrap().is_empty());

        // The next listing has a patience of its own.
        assert!(look().await.is_err());
        assert_eq!(begun.elapsed(), LISTING_PATIENCE * 2);
        store.0.add_permits(1);
        tokio::task::yield_now().await;
        assert!(look().await.is_ok());
    }
}
