//! The cache: look-ups and insertions within their limits.
use std::{
    collections::BTreeMap,
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use inference::{
    MetricSource,
    cache::{CacheFuture, CachedAnswer, ResponseCache, StorageRules},
    metrics::MetricsText,
};
use redis::{Cmd, Value};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use vocabulary::Error;

use super::{
    checksum::EntryChecksum,
    connection::{OperationFailure, RedisConnector},
    counts::{CacheOperation, OperationFailureReason},
    runtime::CacheRuntime,
    settings::RedisSettings,
    store::RedisStore,
    tls::RedisTls,
    value,
};

/// The name on the command line.
pub const NAME: &str = "redis";

/// How the keys of all entries begin. Other keys of the store are not touched, except the secret.
const ENTRY_PREFIX: &str = "nereid:entry:";
/// An answer with more bytes is copied and checked by a thread that may take its time.
const BRIEF_BYTES: usize = 64 << 10;
/// How often the secret is read again. Tests that wait for something else must not wait for this.
const SECRET_PERIOD: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 30 });
/// Keys that one step of a removal looks at.
const SCAN_STEP: usize = 1000;

/// How much may be under way at a time. What exceeds it is dropped.
#[derive(Debug, Clone, Copy)]
struct OperationLimits {
    operations: usize,
    insertion_bytes: usize,
}

impl OperationLimits {
    const DEFAULT: Self = Self { operations: 1024, insertion_bytes: 64 << 20 };
}

/// See [`crate::redis`].
pub struct RedisResponseCache {
    store: Arc<RedisStore>,
    operations: Arc<Semaphore>,
    insertion_bytes: Arc<Semaphore>,
    supervision: JoinHandle<()>,
    runtime: CacheRuntime,
}

impl Drop for RedisResponseCache {
    fn drop(&mut self) {
        self.supervision.abort();
    }
}

impl RedisResponseCache {
    /// Connects to the store that the settings describe. Blocks until the store has answered. Its tasks run on the
    /// runtime of this thread; if there is none, on a thread of the cache. Must not be called by a task of a runtime.
    ///
    /// # Errors
    /// INVALID_ARG: a setting is missing, unknown or has no valid value. INTERNAL: the store cannot be reached, or
    /// refuses the login.
    pub fn open(settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        Self::with_limits(RedisSettings::parse(settings, variable)?, OperationLimits::DEFAULT)
    }

    fn with_limits(settings: RedisSettings, limits: OperationLimits) -> Result<Self, Error> {
        let tls = settings.tls.as_ref().map(RedisTls::new).transpose()?;
        let checksum = EntryChecksum::load(settings.checksum_key_file.as_deref())?;
        let runtime = CacheRuntime::current_or_own()?;
        let store =
            runtime.handle().block_on(RedisStore::start(RedisConnector::new(settings, tls), checksum))?;
        Ok(Self {
            supervision: runtime.handle().spawn(store.clone().supervise(SECRET_PERIOD)),
            store,
            operations: Arc::new(Semaphore::new(limits.operations)),
            insertion_bytes: Arc::new(Semaphore::new(limits.insertion_bytes)),
            runtime,
        })
    }

    /// Begins an operation, unless the store is away or too many are under way.
    fn begin(&self, operation: CacheOperation) -> Option<OwnedSemaphorePermit> {
        if !self.store.is_available() {
            return self.dropped(operation, OperationFailureReason::Away);
        }
        match self.operations.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.dropped(operation, OperationFailureReason::Limit),
        }
    }

    fn dropped<T>(&self, operation: CacheOperation, reason: OperationFailureReason) -> Option<T> {
        self.store.counts.failed(operation, reason);
        None
    }

    /// The operation ends even if its future is dropped. The future may be polled on any thread.
    fn spawn<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> CacheFuture<T> {
        let task = self.runtime.handle().spawn(operation);
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(Error::unavailable("the cache has ended"))) })
    }
}

async fn look_up(store: &RedisStore, key: &str) -> Result<Option<CachedAnswer>, Error> {
    let failed = |reason| store.counts.failed(CacheOperation::LookUp, reason);
    let get = redis::cmd("GET").arg(entry_key(key)).take();
    let bytes = match store.perform(&get).await {
        Ok(Value::BulkString(bytes)) => Bytes::from(bytes),
        Ok(Value::Nil) => return Ok(None),
        Ok(_) => {
            failed(OperationFailureReason::Unreadable);
            return Ok(None);
        }
        Err(failure) => {
            failed(OperationFailureReason::from(&failure));
            return match failure {
                OperationFailure::Refused(why) => {
                    Err(Error::internal(format!("Failed to retrieve key: {key}. {why}")))
                }
                OperationFailure::Away | OperationFailure::TimedOut | OperationFailure::Lost(_) => Ok(None),
            };
        }
    };
    let found = if bytes.len() <= BRIEF_BYTES {
        value::decode(key, &bytes, &store.checksum)
    } else {
        let (key, checksum) = (key.to_owned(), store.checksum.clone());
        let decoding = tokio::task::spawn_blocking(move || value::decode(&key, &bytes, &checksum));
        decoding.await.unwrap_or_default()
    };
    if found.is_none() {
        failed(OperationFailureReason::Unreadable);
    }
    Ok(found)
}

async fn insert(
    store: &RedisStore,
    key: &str,
    answer: Arc<CachedAnswer>,
    size: usize,
    lifetime: Option<Duration>,
) -> Result<(), Error> {
    let make_command = {
        let (key, checksum) = (key.to_owned(), store.checksum.clone());
        move || value::encode(&key, &answer, &checksum).map(|value| set(&key, &value, lifetime))
    };
    let command = if size <= BRIEF_BYTES {
        make_command()
    } else {
        let copied = tokio::task::spawn_blocking(make_command).await;
        copied.unwrap_or_else(|error| Err(Error::internal(format!("the copy failed: {error}"))))
    }?;
    let stored: Result<(), _> = store.perform(&command).await;
    match &stored {
        Ok(()) => store.note_insertion(None),
        Err(failure) => {
            store.counts.failed(CacheOperation::Insertion, OperationFailureReason::from(failure));
            if let OperationFailure::Refused(why) = failure {
                store.note_insertion(Some(why));
            }
        }
    }
    Ok(())
}

/// The command that stores a value. As in Triton, it replaces an older one.
fn set(key: &str, value: &[u8], lifetime: Option<Duration>) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(entry_key(key)).arg(value);
    if let Some(lifetime) = lifetime {
        command.arg("PX").arg(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
    }
    command
}

fn entry_key(key: &str) -> String {
    format!("{ENTRY_PREFIX}{key}")
}

/// A pattern of the store that matches only this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

impl MetricSource for RedisResponseCache {
    fn append_to(&self, text: &mut MetricsText) {
        self.store.counts.append_to(text, self.store.is_available());
    }
}

impl ResponseCache for RedisResponseCache {
    fn name(&self) -> &str {
        NAME
    }

    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>> {
        let begun = Instant::now();
        let Some(permit) = self.begin(CacheOperation::LookUp) else {
            self.store.counts.uses.looked_up(begun, false);
            return Box::pin(ready(Ok(None)));
        };
        let (store, key) = (self.store.clone(), key.to_owned());
        self.spawn(async move {
            let found = look_up(&store, &key).await;
            store.counts.uses.looked_up(begun, matches!(found, Ok(Some(_))));
            drop(permit);
            found
        })
    }

    /// The entry expires after its lifetime, or after the setting `ttl` if that is shorter. It replaces an older one.
    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, terms: StorageRules) -> CacheFuture<()> {
        let begun = Instant::now();
        let lifetime = terms.lifetime.into_iter().chain(self.store.ttl()).min();
        if lifetime.is_some_and(|lifetime| lifetime < Duration::from_millis(1)) {
            return Box::pin(ready(Ok(())));
        }
        let size = match value::size(&answer) {
            Ok(size) => size,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let reserved = self.begin(CacheOperation::Insertion).and_then(|permit| {
            let bytes = u32::try_from(size).ok()?;
            match self.insertion_bytes.clone().try_acquire_many_owned(bytes) {
                Ok(bytes) => Some((permit, bytes)),
                Err(_) => self.dropped(CacheOperation::Insertion, OperationFailureReason::Limit),
            }
        });
        let Some(permits) = reserved else { return Box::pin(ready(Ok(()))) };
        let (store, key) = (self.store.clone(), key.to_owned());
        self.spawn(async move {
            let stored = insert(&store, &key, answer, size, lifetime).await;
            store.counts.uses.inserted(begun);
            drop(permits);
            stored
        })
    }

    fn replaces_answers(&self) -> bool {
        true
    }

    fn outlives_server(&self) -> bool {
        true
    }

    /// Entries that other servers insert meanwhile may stay. The store never blocks for long, because it removes the entries in steps.
    fn remove_all(&self, prefix: &str) -> CacheFuture<u64> {
        let (store, pattern) = (self.store.clone(), format!("{ENTRY_PREFIX}{}*", escaped(prefix)));
        self.spawn(async move {
            let failed = |failure: OperationFailure| {
                Error::unavailable(format!("failed to remove entries of the response cache: {failure}"))
            };
            let (mut cursor, mut removed) = (0, 0);
            loop {
                let scan = redis::cmd("SCAN")
                    .arg(cursor)
                    .arg("MATCH")
                    .arg(&pattern)
                    .arg("COUNT")
                    .arg(SCAN_STEP)
                    .take();
                let (next, keys): (u64, Vec<Vec<u8>>) = store.perform(&scan).await.map_err(failed)?;
                // A step of a small store may give all its keys.
                for keys in keys.chunks(SCAN_STEP) {
                    let count: u64 = store.perform(redis::cmd("UNLINK").arg(keys)).await.map_err(failed)?;
                    removed += count;
                }
                if next == 0 {
                    return Ok(removed);
                }
                cursor = next;
            }
        })
    }

    /// A secret that all servers with this store have. Without the store it cannot be guessed. It changes if the store has
    /// lost it and another server has set it first.
    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.store.secret())
    }

    fn metrics(&self) -> Option<&dyn MetricSource> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
