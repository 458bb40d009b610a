//! The cache in the memory of the process (`--cache-config=local,size=<bytes>`).
//!
//! A response is stored in one piece of memory. An insertion copies it there, because its tensors may be parts of those of
//! a whole batch. A hit shares that memory: nothing is copied before it is sent.
use std::{
    collections::BTreeMap,
    future::ready,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use inference::{
    Error, ErrorCode, MetricSource, Response,
    cache::{CacheFuture, ResponseCache, packed},
    metrics::{MetricFamilyText, MetricKind},
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

mod shard;

use shard::{Shard, bookkeeping};

/// The name on the command line.
pub const NAME: &str = "local";

/// Threads that use the cache at the same time seldom meet in one of so many shards.
const SHARDS: usize = 16;
/// A smaller cache is of no use.
const LEAST_BYTES: usize = 1 << 10;
/// A response with more bytes is copied by a thread that may take its time.
const BRIEF_BYTES: usize = 64 << 10;
/// The reference count of an entry's bytes, which a hit makes.
const REFERENCE_COUNT_BYTES: usize = 24;

/// See the module documentation. A clone is the same cache.
#[derive(Clone)]
pub struct LocalResponseCache(Arc<Inner>);

struct Inner {
    limit: usize,
    used: AtomicUsize,
    shards: [Mutex<Shard<Bytes>>; SHARDS],
    hasher: RandomState,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    look_up_nanos: AtomicU64,
    insertion_nanos: AtomicU64,
}

/// What a cache has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Entries now.
    pub entries: usize,
    /// Bytes that entries use now, with keys and bookkeeping.
    pub used_bytes: usize,
    /// Look-ups that found a response.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Entries that were removed because room was short.
    pub evictions: u64,
    /// Time that all look-ups took together.
    pub look_up_time: Duration,
    /// Time that all insertions took together, evictions included.
    pub insertion_time: Duration,
}

impl LocalResponseCache {
    /// The cache that the settings describe: `size` is its limit in bytes. `memory` is how many bytes the process may use,
    /// if that is known.
    ///
    /// # Errors
    /// INVALID_ARG if the size is missing, is no number, is too small, or does not fit into memory.
    pub fn open(settings: &BTreeMap<String, String>, memory: Option<usize>) -> Result<Self, Error> {
        let failed = |why: &str| Error::invalid(format!("Failed to initialize LocalCache: {why}"));
        if let Some(key) = settings.keys().find(|key| *key != "size") {
            return Err(failed(&format!("there is no setting '{key}'; there is 'size'")));
        }
        let size =
            settings.get("size").ok_or_else(|| failed("config didn't contain a valid 'size' field."))?;
        let limit: usize = size
            .parse()
            .map_err(|_| failed(&format!("'size' must be a number of bytes, but is '{size}'")))?;
        if limit < LEAST_BYTES {
            return Err(failed(&format!("'size' must be at least {LEAST_BYTES} bytes, but is {limit}")));
        }
        match memory {
            Some(memory) if limit > memory => Err(failed(&format!(
                "'size' is {limit} bytes, but the server may use only {memory} bytes of memory"
            ))),
            _ => Ok(Self::of(limit)),
        }
    }

    /// A cache of at most so many bytes.
    pub fn of(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            used: AtomicUsize::new(0),
            shards: Default::default(),
            hasher: RandomState::new(),
            counts: Counts::default(),
        }))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        let Counts { hits, misses, evictions, look_up_nanos, insertion_nanos } = &self.0.counts;
        CacheStatistics {
            entries: self.0.shards.iter().map(|shard| shard.lock().len()).sum(),
            used_bytes: self.0.used.load(Relaxed),
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            evictions: evictions.load(Relaxed),
            look_up_time: Duration::from_nanos(look_up_nanos.load(Relaxed)),
            insertion_time: Duration::from_nanos(insertion_nanos.load(Relaxed)),
        }
    }
}

impl Inner {
    fn shard(&self, hash: u64) -> &Mutex<Shard<Bytes>> {
        // The index of a shard uses the other bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    fn look_up(&self, key: &str) -> Result<Option<Response>, Error> {
        let begun = Instant::now();
        let hash = self.hasher.hash_one(key);
        let found = self.shard(hash).lock().get(hash, key).cloned();
        let count = if found.is_some() { &self.counts.hits } else { &self.counts.misses };
        count.fetch_add(1, Relaxed);
        let found = found.as_ref().map(packed::read_shared).transpose();
        self.counts.look_up_nanos.fetch_add(nanos(begun), Relaxed);
        found
    }

    fn insert(&self, key: &str, response: &Response) -> Result<(), Error> {
        let begun = Instant::now();
        let hash = self.hasher.hash_one(key);
        if self.shard(hash).lock().has(hash, key) {
            return Err(exists(key));
        }
        let size = packed::size(response)?;
        let weight = bookkeeping::<Bytes>()
            + allocated(key.len())
            + allocated(size)
            + allocated(REFERENCE_COUNT_BYTES);
        if weight > self.limit {
            let text =
                format!("Requested byte_size: {weight} is greater than total cache size: {}", self.limit);
            return Err(Error::internal(text));
        }
        let mut own = vec![0; size];
        packed::write(response, &mut own)?;
        self.make_room(weight)?;
        let mut shard = self.shard(hash).lock();
        if shard.has(hash, key) {
            drop(shard);
            self.used.fetch_sub(weight, Relaxed);
            return Err(exists(key));
        }
        shard.insert(hash, key, own.into(), weight);
        drop(shard);
        self.counts.insertion_nanos.fetch_add(nanos(begun), Relaxed);
        Ok(())
    }

    /// Reserves so many bytes, at most the limit. Evicts entries until they are free.
    fn make_room(&self, weight: usize) -> Result<(), Error> {
        let mut next = self.counts.evictions.load(Relaxed) as usize;
        let mut empty = 0;
        loop {
            let reserve = |used: usize| (used + weight <= self.limit).then_some(used + weight);
            if self.used.fetch_update(Relaxed, Relaxed, reserve).is_ok() {
                return Ok(());
            }
            // Shards give room in turn, so that each keeps a share.
            let evicted = self.shards[next % SHARDS].lock().evict();
            next += 1;
            match evicted {
                Some((_, freed)) => {
                    self.used.fetch_sub(freed, Relaxed);
                    self.counts.evictions.fetch_add(1, Relaxed);
                    empty = 0;
                }
                // Others have reserved the room and have not inserted yet.
                None if empty == SHARDS => return Err(Error::internal("Cache is empty, nothing to evict.")),
                None => empty += 1,
            }
        }
    }
}

/// The bytes that an allocator needs for so many bytes. Usual allocators have four sizes between two powers of two.
fn allocated(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(16);
    len.next_multiple_of(step)
}

fn exists(key: &str) -> Error {
    Error::new(ErrorCode::AlreadyExists, format!("key '{key}' already exists"))
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The metrics of Triton's cache of the same name.
impl MetricSource for LocalResponseCache {
    fn append_to(&self, text: &mut String) {
        let CacheStatistics { entries, used_bytes, hits, misses, evictions, look_up_time, insertion_time } =
            self.statistics();
        let gauges = [
            ("util", "Cache utilization [0.0 - 1.0]", used_bytes as f64 / self.limit() as f64),
            ("num_entries", "Number of responses stored in response cache", entries as f64),
            ("num_lookups", "Number of cache lookups in response cache", (hits + misses) as f64),
            ("num_hits", "Number of cache hits in response cache", hits as f64),
            ("num_misses", "Number of cache misses in response cache", misses as f64),
            ("num_evictions", "Number of cache evictions in response cache", evictions as f64),
            (
                "lookup_duration",
                "Total cache lookup duration (hit and miss), in microseconds",
                look_up_time.as_micros() as f64,
            ),
            (
                "insertion_duration",
                "Total cache insertion duration, in microseconds",
                insertion_time.as_micros() as f64,
            ),
        ];
        for (name, help, value) in gauges {
            let name = format!("nv_cache_{name}");
            MetricFamilyText::begin(text, &name, MetricKind::Gauge, help).sample("", value);
        }
    }
}

impl ResponseCache for LocalResponseCache {
    fn name(&self) -> &str {
        NAME
    }

    fn metrics(&self) -> Option<&dyn MetricSource> {
        Some(self)
    }

    fn look_up(&self, key: &str) -> CacheFuture<Option<Response>> {
        Box::pin(ready(self.0.look_up(key)))
    }

    fn insert(&self, key: &str, response: Response) -> CacheFuture<()> {
        if response.byte_size() <= BRIEF_BYTES {
            return Box::pin(ready(self.0.insert(key, &response)));
        }
        let (inner, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            // The first poll may be on the thread of an instance, which is in no runtime.
            if Handle::try_current().is_err() {
                tokio::task::yield_now().await;
            }
            let copied = tokio::task::spawn_blocking(move || inner.insert(&key, &response));
            copied.await.unwrap_or_else(|error| Err(Error::internal(format!("the copy failed: {error}"))))
        })
    }
}

#[cfg(test)]
mod tests;
