//! The response caches of a server, the same for the binary and for servers inside programs.
use std::{collections::BTreeMap, path::Path, sync::Arc};

use c_api::cache::CacheLibraries;
use cache::{local::LocalResponseCache, redis::RedisResponseCache};
use inference::cache::{CacheFinder, ResponseCache};
use vocabulary::Error;

/// Caches in shared libraries, and the built-in `local` and `redis`. A library of such a name comes first.
#[derive(Debug, Default)]
pub struct AssembledCaches;

impl CacheFinder for AssembledCaches {
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error> {
        match name {
            _ if CacheLibraries::has(name, directory) => CacheLibraries.open(name, settings, directory),
            cache::local::NAME => Ok(Arc::new(LocalResponseCache::open(settings, host::usable_memory())?)),
            cache::redis::NAME => Ok(Arc::new(RedisResponseCache::open(settings)?)),
            _ => CacheLibraries.open(name, settings, directory),
        }
    }
}
