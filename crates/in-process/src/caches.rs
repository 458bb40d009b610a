//! The response caches of a server, the same for the binary and for servers inside programs.
use std::{collections::BTreeMap, path::Path, sync::Arc};

use c_api::cache::Caches as Libraries;
use cache::local::LocalResponseCache;
use inference::{
    Error,
    cache::{CacheFinder, ResponseCache},
};

/// Caches in shared libraries, and the built-in `local`. A library of that name comes first.
#[derive(Debug, Default)]
pub struct Caches;

impl CacheFinder for Caches {
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error> {
        if name == cache::local::NAME && !Libraries::has(name, directory) {
            return Ok(Arc::new(LocalResponseCache::open(settings, engine::usable_memory())?));
        }
        Libraries.open(name, settings, directory)
    }
}
