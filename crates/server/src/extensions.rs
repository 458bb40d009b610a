//! The extensions of a server: its plug-ins, and the finder of the response cache.
use std::sync::Arc;

use inference::{
    Plugins,
    cache::{CacheFinder, ResponseCache},
};
use vocabulary::Error;

use crate::options::CacheSettings;

/// All extensions that the composition root passes to a server.
#[derive(Clone, Default)]
pub struct Extensions {
    /// The plug-ins for the engine. `assemble` adds the cache.
    pub plugins: Plugins,
    /// The server's handle that the plug-ins already have. `None` if they have none: then the server makes one.
    pub host: Option<Arc<in_process::Server>>,
    /// Finds the response cache that the options name. Without one, options that name a cache are refused.
    pub cache_finder: Option<Arc<dyn CacheFinder>>,
}

impl Extensions {
    /// Opens the cache that the options name. The cache may need time, so this work runs on a thread that may block.
    ///
    /// # Errors
    /// UNSUPPORTED if the server has no cache finder. Otherwise the error of the finder or of the cache.
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
