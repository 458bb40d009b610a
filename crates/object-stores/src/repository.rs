//! A repository in an object store: it lists its models and copies them.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use inference::repository::StoredObject;
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use vocabulary::Error;

use crate::cache::contents::ContentOrigin;
use crate::cache::{self, LocalCache};
use crate::download::{Download, DownloadError};
use crate::failure::{self, FailedRequest};
use crate::keyed_locks::KeyedLocks;
use crate::listing;
use crate::local_copy::{CopyDirectory, LocalCopies, LocalCopy};
use crate::plan::{CopyPlan, PlannedFile};
use crate::store::{self, OpenStore, StoreSettings, spawn};
use crate::url::ObjectUrl;

/// A listing with more objects is refused, so that its size in memory has a limit.
const MAX_OBJECTS: usize = 500_000;

/// How many objects of one model are copied at the same time.
const PARALLEL_OBJECTS: usize = 16;

/// What all repositories of the process share.
pub(crate) struct SharedParts {
    pub(crate) settings: StoreSettings,
    pub(crate) cache: Arc<LocalCache>,
    pub(crate) copies: Arc<LocalCopies>,
    /// Limits the downloads of the process.
    pub(crate) permits: Arc<Semaphore>,
    /// Lets one task at a time fetch the same content, and make the same copy.
    pub(crate) locks: KeyedLocks,
}

/// A repository in an object store. It can be used by several tasks at the same time.
pub struct RemoteRepository {
    url: ObjectUrl,
    shared: Arc<SharedParts>,
    /// Replaced when the store refuses the credential.
    store: AsyncMutex<Arc<OpenStore>>,
}

impl RemoteRepository {
    pub(crate) async fn open(url: ObjectUrl, shared: Arc<SharedParts>) -> Result<Self, Error> {
        let store = store::open(&url, &shared.settings).await?;
        Ok(Self { url, shared, store: AsyncMutex::new(Arc::new(store)) })
    }

    /// The URL with single slashes and without a slash at its end. It contains no secret.
    pub fn url(&self) -> &str {
        &self.url.text
    }

    /// Asks whether there is an object below the URL, or, if the URL names a whole bucket, whether it can be listed.
    ///
    /// # Errors
    /// NOT_FOUND: there is none. Otherwise as [`RemoteRepository::list`].
    pub async fn check(&self) -> Result<(), Error> {
        let listed = self.listed(&self.url.prefix, 1, "").await?;
        match listed.is_empty() && !self.url.prefix.is_empty() {
            true => Err(Error::not_found(format!("directory or file does not exist at {}", self.url.text))),
            false => Ok(()),
        }
    }

    /// The models by name: each directory directly below the URL with an object in it. The objects are sorted by path. An
    /// empty repository is no error.
    ///
    /// # Errors
    /// UNAVAILABLE: the store cannot be reached or fails. INTERNAL: it refuses the credential. NOT_FOUND: the bucket does
    /// not exist. INVALID_ARGUMENT: the name of an object is not the path of a file. RESOURCE_EXHAUSTED: there are too
    /// many objects.
    pub async fn list(&self) -> Result<BTreeMap<String, Vec<StoredObject>>, Error> {
        let listed = self.listed(&self.url.prefix, usize::MAX, "").await?;
        let prefix = self.url.prefix.clone();
        // A long listing takes long to be sorted.
        spawn(move || Ok(listing::models(&prefix, listed))).await
    }

    /// The objects of one model, sorted by path. There are none if there is no such model.
    ///
    /// # Errors
    /// As [`RemoteRepository::list`].
    pub async fn objects(&self, model: &str) -> Result<Vec<StoredObject>, Error> {
        if !crate::url::is_segment(model) {
            return Ok(Vec::new());
        }
        let separator = if self.url.prefix.is_empty() { "" } else { "/" };
        let prefix = format!("{}{separator}{model}", self.url.prefix);
        Ok(listing::objects(&prefix, &self.listed(&prefix, usize::MAX, model).await?))
    }

    /// Copies the wanted objects of a model into the cache, unless they are there, and returns a directory with them.
    ///
    /// `objects` comes from a listing, and `wanted` is asked for the path of each. If an object has changed since the
    /// listing, the copy fails; the caller lists again. Dropping the future ends the requests and leaves no files.
    ///
    /// # Errors
    /// UNAVAILABLE: the store cannot be reached or fails, or an object has changed or is gone. INTERNAL: the credential
    /// is refused or the cache cannot be written. RESOURCE_EXHAUSTED: the disk is full. INVALID_ARGUMENT: a name cannot
    /// be a path, or a path is a file and a directory.
    pub async fn fetch(
        &self,
        model: &str,
        objects: &[StoredObject],
        wanted: impl Fn(&str) -> bool + Send,
    ) -> Result<LocalCopy, Error> {
        let plan = CopyPlan::new(&self.url, model, objects, wanted)?;
        let _only = self.shared.locks.lock(&plan.key).await;
        let copies = Arc::clone(&self.shared.copies);
        if let Some(copy) = copies.existing(&plan.key) {
            return Ok(LocalCopy::new(copy));
        }
        let (name, CopyPlan { key, directories, files }) = (model.to_owned(), plan);
        let directory = spawn(move || {
            let directory = copies.make(&name, key)?;
            for relative in directories {
                let path = directory.path().join(relative);
                std::fs::create_dir_all(&path).map_err(|error| cache::failed("make", &path, &error))?;
            }
            Ok(directory)
        });
        let directory = directory.await?;
        let copied = files.into_iter().map(|file| self.copy(model, file, Arc::clone(&directory)));
        let copied = stream::iter(copied).buffer_unordered(PARALLEL_OBJECTS);
        let sum = |(count, bytes): (u64, u64), fetched: Option<u64>| async move {
            Ok((count + u64::from(fetched.is_some()), bytes + fetched.unwrap_or_default()))
        };
        let (count, bytes) = copied.try_fold((0, 0), sum).await?;
        if count > 0 {
            log::info!("downloaded {count} objects ({bytes} bytes) of '{}/{model}'", self.url.text);
        }
        directory.share();
        Ok(LocalCopy::new(directory))
    }

    /// Puts one object at its place in a copy, from the cache or from the store. Returns the size of what was downloaded.
    ///
    /// Work on files goes on when this future is dropped. It holds the directory, which is therefore not removed before.
    async fn copy(
        &self,
        model: &str,
        file: PlannedFile,
        directory: Arc<CopyDirectory>,
    ) -> Result<Option<u64>, Error> {
        let _only = self.shared.locks.lock(file.content.as_str()).await;
        let (cache, planned, holder) = (Arc::clone(&self.shared.cache), file.clone(), Arc::clone(&directory));
        let link = move || cache.link(&planned.content, &holder.path().join(&planned.object.path));
        if spawn(link).await? == ContentOrigin::Found {
            return Ok(None);
        }
        let cache = Arc::clone(&self.shared.cache);
        let (temporary, destination) = spawn(move || cache.make_file()).await?;
        let destination = Arc::new(destination);
        self.download(model, &file, &destination).await?;
        let cache = Arc::clone(&self.shared.cache);
        let add = move || {
            let target = directory.path().join(&file.object.path);
            cache.add(&file.content, &destination, &temporary, &target)?;
            Ok(Some(file.object.byte_size))
        };
        spawn(add).await
    }

    async fn download(&self, model: &str, file: &PlannedFile, destination: &Arc<File>) -> Result<(), Error> {
        let object = format!("{model}/{}", file.object.path);
        let mut store = self.current_store().await;
        let mut is_first = true;
        loop {
            let download = Download {
                store: Arc::clone(&store.store),
                location: file.location.clone(),
                object: Arc::clone(&file.object),
                file: Arc::clone(destination),
                permits: Arc::clone(&self.shared.permits),
            };
            let error = match download.run().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let name = || format!("{}/{object}", self.url.text);
            return Err(match error {
                DownloadError::Store(error) if is_first && failure::is_denied(&error) => {
                    is_first = false;
                    store = self.reopened(&store).await?;
                    continue;
                }
                DownloadError::Store(error) => {
                    let failed =
                        FailedRequest { url: &self.url, redaction: &store.redaction, object: Some(&object) };
                    failed.error(&error)
                }
                DownloadError::Changed => failure::changed(&name()),
                DownloadError::Incomplete { received, expected } => Error::unavailable(format!(
                    "cannot read '{}': the store has sent {received} of {expected} bytes",
                    name()
                )),
                DownloadError::Local(error) => Error::new(
                    error.code,
                    format!("cache of object stores: cannot write '{}': {}", name(), error.message),
                ),
            });
        }
    }

    /// All objects below a path of the bucket, up to the first `limit`.
    async fn listed(&self, prefix: &str, limit: usize, object: &str) -> Result<Vec<ObjectMeta>, Error> {
        let object = Some(object).filter(|object| !object.is_empty());
        let mut store = self.current_store().await;
        for is_first in [true, false] {
            let error = match self.listed_by(&store, prefix, limit).await? {
                Ok(listed) => return Ok(listed),
                Err(error) => error,
            };
            if !is_first || !failure::is_denied(&error) {
                return Err(
                    FailedRequest { url: &self.url, redaction: &store.redaction, object }.error(&error)
                );
            }
            store = self.reopened(&store).await?;
        }
        Err(Error::internal(format!("'{}' was not listed", self.url.text)))
    }

    async fn listed_by(
        &self,
        store: &OpenStore,
        prefix: &str,
        limit: usize,
    ) -> Result<object_store::Result<Vec<ObjectMeta>>, Error> {
        let prefix = Path::parse(prefix).map_err(|error| {
            Error::invalid(format!("'{}' is not a path of objects: {error}", self.url.text))
        })?;
        let mut pages = store.store.list(Some(&prefix));
        let mut listed = Vec::new();
        while let Some(next) = pages.next().await {
            match next {
                Ok(meta) => listed.push(meta),
                Err(error) => return Ok(Err(error)),
            }
            if listed.len() >= limit {
                break;
            }
            if listed.len() > MAX_OBJECTS {
                return Err(Error::exhausted(format!(
                    "'{}' has more than {MAX_OBJECTS} objects; a repository has its own path",
                    self.url.text
                )));
            }
        }
        Ok(Ok(listed))
    }

    async fn current_store(&self) -> Arc<OpenStore> {
        Arc::clone(&*self.store.lock().await)
    }

    /// The store with a credential that was read again. As Triton: the credential is read again once when an access fails.
    async fn reopened(&self, refused: &Arc<OpenStore>) -> Result<Arc<OpenStore>, Error> {
        let mut current = self.store.lock().await;
        // Another task may have replaced the store already.
        if Arc::ptr_eq(&current, refused) {
            *current = Arc::new(store::open(&self.url, &self.shared.settings).await?);
        }
        Ok(Arc::clone(&current))
    }
}
