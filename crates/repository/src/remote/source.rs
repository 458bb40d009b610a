//! One repository in an object store: how it is opened and listed.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use inference::{
    lock::Mutex,
    repository::{LocalModelFiles, ObjectRepository, RepositoryOpener, StoredObject},
};
use tokio::{
    sync::{OnceCell, watch},
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use vocabulary::{Error, Name};

/// The objects of each model, by the model's directory.
pub type RemoteModels = BTreeMap<String, Vec<StoredObject>>;

/// Looks at all repositories wait for the listing of a store until it has run for so long.
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
    pub(super) async fn fetch(
        &self,
        model: &str,
        objects: &[StoredObject],
    ) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.access.open().await?.fetch(model, objects).await
    }

    /// The models, by a listing that begins now, or that is running. Without a patience, the call waits for its end. With
    /// one, no call waits for a listing that has run for longer: it goes on, and the first call after its end returns its
    /// result.
    ///
    /// # Errors
    /// Why the repository cannot be listed; if the listing takes too long, why the last one has failed.
    async fn models(&self, patience: Option<Duration>) -> ListingResult {
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
