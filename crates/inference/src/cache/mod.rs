//! The extension point of response caches: responses that are kept under a key, from one request to the next like it.
//!
//! A cache knows no models. What a key stands for is decided by the engine, so that a cache may outlive the server and
//! serve several of them.
use std::{collections::BTreeMap, path::Path, pin::Pin, sync::Arc};

use crate::{Error, Response};

pub mod packed;

/// What a cache does, when it is done. Dropping it gives up waiting; the cache may still do it.
pub type CacheFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Keeps responses between requests. One cache serves all models, many threads at a time.
///
/// Neither function blocks: a cache that has to wait (for a store in the network, for a lock, for a library) does so
/// elsewhere, with a bound on what waits. A future that is ready when it is polled first costs no change of thread.
pub trait ResponseCache: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// The response that is kept under `key`, if there is one. It shares its tensors with the cache where it can.
    ///
    /// # Errors
    /// Why that cannot be told. The request goes on as if there were nothing.
    fn look_up(&self, key: &str) -> CacheFuture<Option<Response>>;

    /// Keeps `response` under `key`.
    ///
    /// # Errors
    /// ALREADY_EXISTS, or why it cannot be kept.
    fn insert(&self, key: &str, response: Response) -> CacheFuture<()>;
}

/// Finds caches that are not built into the server.
pub trait CacheFinder: Send + Sync {
    /// Opens the cache of that name (`--cache-config`), looked for below `directory` (`--cache-directory`). May block.
    ///
    /// # Errors
    /// [`no_library`] if there is none by that name; whatever the cache says if it does not start.
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error>;
}

/// The error of [`CacheFinder::open`] for a cache that is not there.
pub fn no_library(name: &str, directory: &Path) -> Error {
    let directory = directory.display();
    Error::invalid(format!("unable to find 'libtritoncache_{name}.so' for cache. Searched: {directory}"))
}
