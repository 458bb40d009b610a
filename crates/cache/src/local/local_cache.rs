//! The cache, and what all models share of it.
use std::{
    collections::{BTreeMap, HashMap},
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use inference::{
    MetricSource,
    cache::{CacheFuture, CacheUsage, CachedAnswer, ResponseCache, StorageRules, packed},
    lock::Mutex,
    metrics::MetricsText,
};
use tokio::runtime::Handle;
use vocabulary::{Error, ErrorCode, Name};

use super::partition::CachePartition;
use super::reserved::ReservedMemory;
use super::shard::bookkeeping;
use crate::use_counts::{UseCounts, append_gauge};

/// The name on the command line.
pub const NAME: &str = "local";

/// A smaller cache is of no use.
const LEAST_BYTES: usize = 1 << 10;
/// An answer with more bytes is copied by a thread that may take its time.
const BRIEF_BYTES: usize = 64 << 10;
/// The reference count of an entry's bytes, which a hit makes.
const REFERENCE_COUNT_BYTES: usize = 24;

/// See [`crate::local`]. A clone is the same cache.
#[derive(Clone)]
pub struct LocalResponseCache {
    memory: Arc<Memory>,
    /// Where the models that use this value keep their answers.
    partition: Arc<CachePartition>,
}

/// What all partitions have in common.
struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// What was taken at the start for entries that have not come yet, if the operator wants that.
    reserved: Option<ReservedMemory>,
    /// Of models without a quota.
    common: Arc<CachePartition>,
    /// Of models with a quota, by name.
    own: Mutex<HashMap<Name, Arc<CachePartition>>>,
    uses: UseCounts,
    evictions: AtomicU64,
    /// Known only to this process.
    secret: [u8; 32],
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
    /// The cache that the settings describe: `size` is its limit in bytes. With `reserve=true` it takes them now, so
    /// that later no other use of memory can keep it from them. `memory` is how many bytes the process may use, if that
    /// is known.
    ///
    /// # Errors
    /// INVALID_ARG if the size is missing, is no number, is too small, or does not fit into memory, or if another
    /// setting is not valid.
    pub fn open(settings: &BTreeMap<String, String>, memory: Option<usize>) -> Result<Self, Error> {
        let failed = |why: &str| Error::invalid(format!("Failed to initialize LocalCache: {why}"));
        if let Some(key) = settings.keys().find(|key| !["size", "reserve"].contains(&key.as_str())) {
            return Err(failed(&format!("there is no setting '{key}'; there are 'size' and 'reserve'")));
        }
        let size =
            settings.get("size").ok_or_else(|| failed("config didn't contain a valid 'size' field."))?;
        let limit: usize = size
            .parse()
            .map_err(|_| failed(&format!("'size' must be a number of bytes, but is '{size}'")))?;
        if limit < LEAST_BYTES {
            return Err(failed(&format!("'size' must be at least {LEAST_BYTES} bytes, but is {limit}")));
        }
        if let Some(memory) = memory.filter(|memory| limit > *memory) {
            return Err(failed(&format!(
                "'size' is {limit} bytes, but the server may use only {memory} bytes of memory"
            )));
        }
        match settings.get("reserve").map_or("false", String::as_str) {
            "false" => Ok(Self::of(limit)),
            "true" => {
                let reserved = ReservedMemory::of(limit);
                let reserved =
                    reserved.ok_or_else(|| failed(&format!("there are no {limit} bytes of memory")))?;
                Ok(Self::with(limit, Some(reserved)))
            }
            other => Err(failed(&format!("'reserve' must be 'true' or 'false', but is '{other}'"))),
        }
    }

    /// A cache of at most so many bytes.
    pub fn of(limit: usize) -> Self {
        Self::with(limit, None)
    }

    fn with(limit: usize, reserved: Option<ReservedMemory>) -> Self {
        let partition = Arc::new(CachePartition::new(limit));
        let memory = Memory {
            limit,
            used: AtomicUsize::new(0),
            reserved,
            common: partition.clone(),
            own: Mutex::default(),
            uses: UseCounts::default(),
            evictions: AtomicU64::new(0),
            secret: rand::random(),
        };
        Self { memory: Arc::new(memory), partition }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.memory.limit
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        let Memory { used, common, own, uses, evictions, .. } = &*self.memory;
        let own: Vec<_> = own.lock().values().cloned().collect();
        CacheStatistics {
            entries: own.iter().chain([common]).map(|partition| partition.entries()).sum(),
            used_bytes: used.load(Relaxed),
            hits: uses.hits(),
            misses: uses.misses(),
            evictions: evictions.load(Relaxed),
            look_up_time: uses.look_up_time(),
            insertion_time: uses.insertion_time(),
        }
    }

    fn found(&self, key: &str) -> Result<Option<CachedAnswer>, Error> {
        let begun = Instant::now();
        let found = self.partition.get(key);
        let is_hit = found.is_some();
        let answer = found.as_ref().map(packed::read_shared).transpose();
        self.memory.uses.looked_up(begun, is_hit);
        answer
    }

    fn store(&self, key: &str, answer: &CachedAnswer, replaces: bool) -> Result<(), Error> {
        let begun = Instant::now();
        let Self { memory, partition } = self;
        let size = packed::size(answer)?;
        let weight = bookkeeping::<Bytes>()
            + allocated(key.len())
            + allocated(size)
            + allocated(REFERENCE_COUNT_BYTES);
        if weight > partition.limit() {
            let text = format!(
                "Requested byte_size: {weight} is greater than total cache size: {}",
                partition.limit()
            );
            return Err(Error::internal(text));
        }
        memory.make_room(partition, weight)?;
        if let Some(reserved) = &memory.reserved {
            reserved.keep(memory.limit.saturating_sub(memory.used.load(Relaxed)));
        }
        // The copy gets the memory that was given back, so it is made after that.
        let inserted = packed::packed(answer)
            .and_then(|own| partition.insert(key, own.into(), weight, replaces).ok_or_else(|| exists(key)));
        match inserted {
            Ok(replaced) => memory.used.fetch_sub(replaced, Relaxed),
            Err(error) => {
                partition.release(weight);
                memory.used.fetch_sub(weight, Relaxed);
                return Err(error);
            }
        };
        memory.uses.inserted(begun);
        Ok(())
    }
}

impl Memory {
    /// Reserves so many bytes, at most the limit of the partition. Evicts entries until they are free.
    fn make_room(&self, partition: &Arc<CachePartition>, weight: usize) -> Result<(), Error> {
        while !partition.reserve(weight) {
            // Others may have reserved the room and have not inserted yet.
            self.evict([partition]).ok_or_else(nothing_to_evict)?;
        }
        let reserve = |used: usize| (used + weight <= self.limit).then_some(used + weight);
        if self.used.fetch_update(Relaxed, Relaxed, reserve).is_ok() {
            return Ok(());
        }
        let ordered;
        let partitions = if self.own.lock().is_empty() {
            // No model has a quota, so all share one partition.
            std::slice::from_ref(partition)
        } else {
            ordered = self.in_order_of_eviction(partition);
            &ordered
        };
        while self.used.fetch_update(Relaxed, Relaxed, reserve).is_err() {
            if self.evict(partitions).is_none() {
                partition.release(weight);
                return Err(nothing_to_evict());
            }
        }
        Ok(())
    }

    /// Who gives room for an entry of `partition`: first the models that have gone, then the models without a quota, then
    /// the model itself. What is reserved for other models by their quotas is taken last.
    fn in_order_of_eviction(&self, partition: &Arc<CachePartition>) -> Vec<Arc<CachePartition>> {
        // A model that is there holds its partition too.
        let is_used = |partition: &&Arc<CachePartition>| Arc::strong_count(partition) > 1;
        let own = self.own.lock();
        let (used, left): (Vec<_>, Vec<_>) = own.values().partition(is_used);
        left.into_iter().chain([&self.common, partition]).chain(used).cloned().collect()
    }

    /// Evicts an entry of the first of the partitions that has one.
    fn evict<'a>(&self, partitions: impl IntoIterator<Item = &'a Arc<CachePartition>>) -> Option<()> {
        let freed = partitions.into_iter().find_map(|partition| partition.evict())?;
        self.used.fetch_sub(freed, Relaxed);
        self.evictions.fetch_add(1, Relaxed);
        Some(())
    }
}

fn nothing_to_evict() -> Error {
    Error::internal("Cache is empty, nothing to evict.")
}

/// The bytes that an allocator needs for so many bytes. Usual allocators have four sizes between two powers of two.
fn allocated(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(16);
    len.next_multiple_of(step)
}

fn exists(key: &str) -> Error {
    Error::new(ErrorCode::AlreadyExists, format!("key '{key}' already exists"))
}

/// The metrics of Triton's cache of the same name.
impl MetricSource for LocalResponseCache {
    fn append_to(&self, text: &mut MetricsText) {
        let CacheStatistics { entries, used_bytes, evictions, .. } = self.statistics();
        let used = used_bytes as f64 / self.limit() as f64;
        append_gauge(text, "nv_cache_util", "Cache utilization [0.0 - 1.0]", used);
        append_gauge(
            text,
            "nv_cache_num_entries",
            "Number of responses stored in response cache",
            entries as f64,
        );
        self.memory.uses.append_to(text);
        append_gauge(
            text,
            "nv_cache_num_evictions",
            "Number of cache evictions in response cache",
            evictions as f64,
        );
    }
}

impl ResponseCache for LocalResponseCache {
    fn name(&self) -> &str {
        NAME
    }

    fn usage(&self) -> Option<CacheUsage> {
        let CacheStatistics { entries, used_bytes, evictions, .. } = self.statistics();
        Some(CacheUsage { entries, used_bytes, limit_bytes: self.limit(), evictions })
    }

    fn metrics(&self) -> Option<&dyn MetricSource> {
        Some(self)
    }

    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>> {
        Box::pin(ready(self.found(key)))
    }

    fn look_up_at_once(&self, key: &str) -> Option<Result<Option<CachedAnswer>, Error>> {
        Some(self.found(key))
    }

    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, terms: StorageRules) -> CacheFuture<()> {
        if answer.byte_size() <= BRIEF_BYTES {
            return Box::pin(ready(self.store(key, &answer, terms.replaces)));
        }
        let (cache, key) = (self.clone(), key.to_owned());
        Box::pin(async move {
            // The first poll may be on the thread of an instance, which is in no runtime.
            if Handle::try_current().is_err() {
                tokio::task::yield_now().await;
            }
            let copied = tokio::task::spawn_blocking(move || cache.store(&key, &answer, terms.replaces));
            copied.await.unwrap_or_else(|error| Err(Error::internal(format!("the copy failed: {error}"))))
        })
    }

    fn replaces_answers(&self) -> bool {
        true
    }

    fn remove_all(&self, prefix: &str) -> CacheFuture<u64> {
        let (entries, bytes) = self.partition.remove_all(prefix);
        self.memory.used.fetch_sub(bytes, Relaxed);
        Box::pin(ready(Ok(entries)))
    }

    /// A model that comes again with the same quota finds its answers.
    fn with_quota(&self, model: &Name, bytes: usize) -> Result<Arc<dyn ResponseCache>, Error> {
        let Memory { limit, own, .. } = &*self.memory;
        if bytes > *limit {
            return Err(Error::invalid(format!(
                "the quota of model '{model}' is {bytes} bytes of the response cache, which has only {limit}"
            )));
        }
        let mut own = own.lock();
        // Of models that have gone and left nothing.
        own.retain(|_, partition| Arc::strong_count(partition) > 1 || partition.used() > 0);
        let partition = own.entry(model.clone()).or_insert_with(|| Arc::new(CachePartition::new(bytes)));
        partition.set_limit(bytes);
        Ok(Arc::new(Self { memory: self.memory.clone(), partition: partition.clone() }))
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.memory.secret)
    }
}

#[cfg(test)]
mod tests;
