//! What the server asks of response caches, and what they hold.
use std::{collections::BTreeMap, path::Path, pin::Pin, sync::Arc, time::Duration};

use smallvec::SmallVec;
use vocabulary::{Error, ErrorCode, Name};

use crate::{MetricSource, Response};

/// The pending result of a cache operation. Dropping it stops waiting; the cache may still complete the operation.
pub type CacheFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// All responses to a request, as a cache keeps them.
#[derive(Debug, Clone, Default)]
pub struct CachedAnswer {
    /// In their order; none of them is an error. Models that are not decoupled have one.
    pub responses: SmallVec<[Response; 1]>,
    /// When the model computed them: the time since 1970, by the clock of the server that did.
    pub computed: Duration,
}

impl From<Response> for CachedAnswer {
    /// An answer of one response, as old as can be.
    fn from(response: Response) -> Self {
        Self { responses: [response].into_iter().collect(), computed: Duration::ZERO }
    }
}

impl CachedAnswer {
    /// How old the answer is at that time since 1970. Zero if it comes from a server whose clock is ahead.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.computed)
    }

    /// Bytes of memory that the responses use, bookkeeping included.
    pub fn byte_size(&self) -> usize {
        self.responses.iter().map(Response::byte_size).sum()
    }
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUsage {
    /// The number of answers.
    pub entries: usize,
    /// The bytes that they use.
    pub used_bytes: usize,
    /// The most bytes that they may use.
    pub limit_bytes: usize,
    /// The answers that have left because room was short.
    pub evictions: u64,
}

/// How a cache stores an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageRules {
    /// Nobody wants the answer after this time. `None`: it has no end.
    pub lifetime: Option<Duration>,
    /// It replaces an answer under the same key.
    pub replaces: bool,
}

/// Stores the answers to requests. One cache serves all models, on many threads at a time.
///
/// No function but [`with_quota`](Self::with_quota) blocks. A cache that must wait (for a store in the network, a lock, a
/// library) waits on its own threads, with a bound on the number of waiting operations. A future that is ready at its first
/// poll causes no thread switch.
pub trait ResponseCache: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Returns the answer stored under `key`, if there is one. The answer shares its tensors with the cache where
    /// possible.
    ///
    /// # Errors
    /// The reason why the look-up failed. The request then continues as after a cache miss.
    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>>;

    /// As [`look_up`](Self::look_up), for a cache that never waits. `None`: it may have to wait.
    fn look_up_at_once(&self, key: &str) -> Option<Result<Option<CachedAnswer>, Error>> {
        let _ = key;
        None
    }

    /// Stores `answer` under `key`. Whoever waits for the same answer shares it.
    ///
    /// # Errors
    /// ALREADY_EXISTS, or the reason why the cache cannot store it.
    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, terms: StorageRules) -> CacheFuture<()>;

    /// Whether it follows [`StorageRules`]. Otherwise a key keeps its first answer.
    fn replaces_answers(&self) -> bool {
        false
    }

    /// Removes all answers whose keys begin with `prefix`. Returns how many there were.
    ///
    /// # Errors
    /// UNSUPPORTED if the cache cannot remove answers, or the reason why it has not.
    fn remove_all(&self, prefix: &str) -> CacheFuture<u64> {
        let _ = prefix;
        let text = format!("cache '{}' cannot remove answers", self.name());
        Box::pin(std::future::ready(Err(Error::new(ErrorCode::Unsupported, text))))
    }

    /// The cache as a model uses it that has a part of so many bytes for itself. May block.
    ///
    /// # Errors
    /// INVALID_ARG if the cache has no such parts, or if the part is larger than the cache.
    fn with_quota(&self, model: &Name, bytes: usize) -> Result<Arc<dyn ResponseCache>, Error> {
        let _ = bytes;
        let cache = self.name();
        Err(Error::invalid(format!("cache '{cache}' has no quotas, which model '{model}' asks for")))
    }

    /// Whether other servers, or this one after a restart, may find the answers.
    fn outlives_server(&self) -> bool {
        false
    }

    /// What only the servers know that share this cache. `None`: whoever reads the cache may be another program, and finds
    /// answers by keys that are the same everywhere.
    fn secret(&self) -> Option<[u8; 32]> {
        None
    }

    /// What it holds now, if it knows.
    fn usage(&self) -> Option<CacheUsage> {
        None
    }

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
