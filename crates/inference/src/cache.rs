//! The plug-in door of response caches: buffers that are kept under a key, from one request to the next like it.
//!
//! A cache knows neither models nor tensors. What a key stands for and what lies in the buffers is the engine's affair,
//! so that a cache may outlive the server and serve several of them.
use std::{collections::BTreeMap, path::Path, sync::Arc};

use crate::Error;

/// Keeps responses between requests (`tritoncache.h` is its model). One cache serves all models, many threads at a time.
///
/// The threads are those that bring requests and those that answer them: a cache that takes long holds them up.
pub trait ResponseCache: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Shows what is stored under `key` to `take`, which copies what it needs. False: there is nothing.
    ///
    /// # Errors
    /// Why it cannot be told, or the error of `take`.
    #[expect(clippy::type_complexity, reason = "a name for the closure's type would hide what it is shown")]
    fn lookup(&self, key: &str, take: &mut dyn FnMut(&[&[u8]]) -> Result<(), Error>) -> Result<bool, Error>;

    /// Stores as many buffers as there are `sizes`, of those sizes, which `fill` writes into the cache's own memory. It
    /// panics if it is shown others.
    ///
    /// # Errors
    /// ALREADY_EXISTS, or why it could not be stored.
    fn insert(&self, key: &str, sizes: &[usize], fill: &mut dyn FnMut(&mut [&mut [u8]]))
    -> Result<(), Error>;
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
