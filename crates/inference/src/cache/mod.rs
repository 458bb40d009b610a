//! The extension point for response caches. A cache stores responses under keys, for later equal requests.
//!
//! A cache knows no models. The engine defines the keys. A cache may therefore outlive the server and serve several
//! servers.
use std::{collections::BTreeMap, path::Path, pin::Pin, sync::Arc};

use crate::{Error, MetricSource, Response};

pub mod packed;

/// The pending result of a cache operation. Dropping it stops waiting; the cache may still complete the operation.
pub type CacheFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Stores responses between requests. One cache serves all models, on many threads at a time.
///
/// Neither function blocks. A cache that must wait (for a store in the network, a lock, a library) waits on its own
/// threads, with a bound on the number of waiting operations. A future that is ready at its first poll causes no
/// thread switch.
pub trait ResponseCache: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Returns the response stored under `key`, if there is one. The response shares its tensors with the cache where
    /// possible.
    ///
    /// # Errors
    /// The reason why the lookup failed. The request then continues as after a cache miss.
    fn look_up(&self, key: &str) -> CacheFuture<Option<Response>>;

    /// Stores `response` under `key`.
    ///
    /// # Errors
    /// ALREADY_EXISTS, or the reason why the cache cannot store it.
    fn insert(&self, key: &str, response: Response) -> CacheFuture<()>;

    /// Its metrics, if it has any besides those that libraries register themselves.
    fn metrics(&self) -> Option<&dyn MetricSource> {
        None
    }
}

/// Finds caches that are not built into the server.
pub trait CacheFinder: Send + Sync {
    /// Opens the cache with that name (`--cache-config`). Searches below `directory` (`--cache-directory`). May
    /// block.
    ///
    /// # Errors
    /// [`no_library`] if no cache has that name; the cache's own error if it does not start.
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error>;
}

/// The error of [`CacheFinder::open`] for a cache that does not exist.
pub fn no_library(name: &str, directory: &Path) -> Error {
    let directory = directory.display();
    Error::invalid(format!("unable to find 'libtritoncache_{name}.so' for cache. Searched: {directory}"))
}
