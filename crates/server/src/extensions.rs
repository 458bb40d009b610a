//! What a server is made of besides its own code: plug-ins, and who finds the response cache.
use std::sync::Arc;

use engine::Plugins;
use inference::{
    Error,
    cache::{CacheFinder, ResponseCache},
};

use crate::options::CacheSettings;

/// Everything that is plugged in where a server is assembled.
#[derive(Clone, Default)]
pub struct Extensions {
    /// What the engine is given; the cache is put there.
    pub plugins: Plugins,
    /// The server as plug-ins know it; one of its own, if nobody has told them of any.
    pub host: Option<Arc<in_process::Server>>,
    /// Finds the response cache that the options name. Without one, options that name a cache are refused.
    pub cache_finder: Option<Arc<dyn CacheFinder>>,
}

impl Extensions {
    /// Opens the cache that the options ask for. It may take its time, which no thread of the network shall lose.
    ///
    /// # Errors
    /// UNSUPPORTED if nobody can find caches, or whatever the finder or the cache says.
    pub(crate) async fn open_cache(
        &self,
        wanted: Option<&CacheSettings>,
    ) -> Result<Option<Arc<dyn ResponseCache>>, Error> {
        let Some(CacheSettings { name, settings, directory }) = wanted.cloned() else { return Ok(None) };
        let Some(finder) = self.cache_finder.clone() else {
            let text = format!("response cache '{name}' is not supported by this version of nereid");
            return Err(Error::unsupported(text));
        };
        let opening = tokio::task::spawn_blocking(move || finder.open(&name, &settings, &directory));
        let failed = |error| Error::internal(format!("failed to open the response cache: {error}"));
        opening.await.map_err(failed)?.map(Some)
    }
}
