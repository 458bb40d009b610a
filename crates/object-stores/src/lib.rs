//! Model repositories in object stores: S3, Google Cloud Storage, Azure Blob Storage, and servers with their protocols.
//!
//! [`ObjectStores`] opens repositories by their URLs. A [`RemoteRepository`] lists its models: a difference between two
//! listings is a change. It copies the objects that a model needs into a local cache, and returns a directory
//! ([`LocalCopy`]) that stays as long as somebody holds it. The cache survives restarts; see `cache`.
//!
//! The URL forms, credentials and texts are those of Triton; `docs/object-stores.md` has the differences.

#![forbid(unsafe_code)]

mod cache;
mod connector;
mod credentials;
mod download;
mod failure;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keyed_locks;
mod listing;
mod opener;
mod plan;
mod repository;
mod store;
mod url;

use std::path::PathBuf;
use std::sync::Arc;

use inference::Error;
use tokio::sync::Semaphore;

pub use cache::{CacheOptions, LocalCopy};
pub use inference::repository::{ObjectKind, StoredObject};
pub use opener::{DEFAULT_UNUSED_BYTES, StoreOpener, default_cache_directory};
pub use repository::RemoteRepository;
pub use url::is_url;

use cache::LocalCache;
use connector::{RequestTimeouts, StoreConnector};
use credentials::StoreVariables;
use keyed_locks::KeyedLocks;
use repository::SharedParts;
use store::StoreSettings;
use url::ObjectUrl;

/// How many downloads the process has at the same time. Each one holds about 2 MB.
const PARALLEL_DOWNLOADS: usize = 16;

/// Opens repositories in object stores. All of them share the cache and the limit on downloads.
pub struct ObjectStores(Arc<SharedParts>);

impl ObjectStores {
    /// Reads the variables that credentials are made of, and opens the cache. Blocks, because it reads files; credentials
    /// are read when a repository is opened.
    ///
    /// # Errors
    /// INTERNAL: the directory of the cache cannot be written. INVALID_ARGUMENT: the file of `AWS_CA_BUNDLE` cannot be
    /// used.
    pub fn from_environment(
        variables: &dyn Fn(&str) -> Option<String>,
        cache: CacheOptions,
    ) -> Result<Self, Error> {
        Self::new(variables, cache, RequestTimeouts::default(), store::default_retry())
    }

    fn new(
        variables: &dyn Fn(&str) -> Option<String>,
        cache: CacheOptions,
        timeouts: RequestTimeouts,
        retry: object_store::RetryConfig,
    ) -> Result<Self, Error> {
        let variables = StoreVariables::read(variables);
        let ca_bundle = variables.get("AWS_CA_BUNDLE").map(PathBuf::from);
        let connector = StoreConnector::new(ca_bundle.as_deref(), timeouts)?;
        Ok(Self(Arc::new(SharedParts {
            settings: StoreSettings { variables, connector, retry },
            cache: LocalCache::open(cache)?,
            permits: Arc::new(Semaphore::new(PARALLEL_DOWNLOADS)),
            locks: KeyedLocks::default(),
        })))
    }

    /// Opens the repository at a URL: finds its credential. It does not ask the store; see [`RemoteRepository::check`].
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the URL or its credential cannot be used. NOT_FOUND: the credential file has no entry for it.
    /// UNSUPPORTED: the kind of credential is not supported.
    pub async fn repository(&self, url: &str) -> Result<RemoteRepository, Error> {
        RemoteRepository::open(ObjectUrl::parse(url)?, Arc::clone(&self.0)).await
    }
}

#[cfg(test)]
mod test_server;

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
