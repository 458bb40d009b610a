//! What all repositories of the process share: the variables, the client, the cache and the limit on downloads.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use vocabulary::Error;

use crate::cache::{CacheOptions, LocalCache};
use crate::connector::{RequestTimeouts, StoreConnector};
use crate::credentials::StoreVariables;
use crate::keyed_locks::KeyedLocks;
use crate::local_copy::LocalCopies;
use crate::repository::{RemoteRepository, SharedParts};
use crate::store::{self, StoreSettings};
use crate::url::ObjectUrl;

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
        let cache = LocalCache::open(cache)?;
        Ok(Self(Arc::new(SharedParts {
            settings: StoreSettings { variables, connector, retry },
            copies: LocalCopies::new(Arc::clone(&cache)),
            cache,
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
#[path = "server_tests.rs"]
mod tests;
