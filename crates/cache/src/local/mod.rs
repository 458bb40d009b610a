//! The cache in the memory of the process (`--cache-config=local,size=<bytes>`).
//!
//! An answer is stored in one piece of memory. An insertion copies it there, because its tensors may be parts of those of a
//! whole batch. A hit shares that memory: nothing is copied before it is sent.
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
    Error, ErrorCode, MetricSource, Name,
    cache::{CacheFuture, CachedAnswer, ResponseCache, StorageTerms, packed},
    metrics::{MetricFamilyText, MetricKind},
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

mod shard;
mod space;

use shard::bookkeeping;
use space::Space;

/// The name on the command line.
pub const NAME: &str = "local";

/// A smaller cache is of no use.
const LEAST_BYTES: usize = 1 << 10;
/// An answer with more bytes is copied by a thread that may take its time.
const BRIEF_BYTES: usize = 64 << 10;
/// The reference count of an entry's bytes, which a hit makes.
const REFERENCE_COUNT_BYTES: usize = 24;

/// See the module documentation. A clone is the same cache.
#[derive(Clone)]
pub struct LocalResponseCache {
    memory: Arc<Memory>,
    /// Where the models that use this value keep their answers.
    space: Arc<Space>,
}

/// What all spaces have in common.
struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// Of models without a quota.
    common: Arc<Space>,
    /// Of models with a quota, by name.
    own: Mutex<HashMap<Name, Arc<Space>>>,
    counts: Counts,
    /// Known only to this process.
    secret: [u8; 32],
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
        let space = Arc::new(Space::new(limit));
        let memory = Memory {
            limit,
            used: AtomicUsize::new(0),
            common: space.clone(),
            own: Mutex::default(),
            counts: Counts::default(),
            secret: rand::random(),
        };
        Self { memory: Arc::new(memory), space }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.memory.limit
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        let Memory { used, common, own, counts, .. } = &*self.memory;
        let own: Vec<_> = own.lock().values().cloned().collect();
        CacheStatistics {
            entries: own.iter().chain([common]).map(|space| space.entries()).sum(),
            used_bytes: used.load(Relaxed),
            hits: counts.hits.load(Relaxed),
            misses: counts.misses.load(Relaxed),
            evictions: counts.evictions.load(Relaxed),
            look_up_time: Duration::from_nanos(counts.look_up_nanos.load(Relaxed)),
            insertion_time: Duration::from_nanos(counts.insertion_nanos.load(Relaxed)),
        }
    }

    fn found(&self, key: &str) -> Result<Option<CachedAnswer>, Error> {
        let begun = Instant::now();
        let counts = &self.memory.counts;
        let found = self.space.get(key);
        let count = if found.is_some() { &counts.hits } else { &counts.misses };
        count.fetch_add(1, Relaxed);
        let found = found.as_ref().map(packed::read_shared).transpose();
        counts.look_up_nanos.fetch_add(nanos(begun), Relaxed);
        found
    }

    fn store(&self, key: &str, answer: &CachedAnswer, replaces: bool) -> Result<(), Error> {
        let begun = Instant::now();
        let Self { memory, space } = self;
        if !replaces && space.has(key) {
            return Err(exists(key));
        }
        let size = packed::size(answer)?;
        let weight = bookkeeping::<Bytes>()
            + allocated(key.len())
            + allocated(size)
            + allocated(REFERENCE_COUNT_BYTES);
        if weight > space.limit() {
            let text =
                format!("Requested byte_size: {weight} is greater than total cache size: {}", space.limit());
            return Err(Error::internal(text));
        }
        let mut own = vec![0; size];
        packed::write(answer, &mut own)?;
        memory.make_room(space, weight)?;
        let inserted = space.insert(key, own.into(), weight, replaces);
        match inserted {
            Some(replaced) => memory.used.fetch_sub(replaced, Relaxed),
            None => {
                space.release(weight);
                memory.used.fetch_sub(weight, Relaxed);
                return Err(exists(key));
            }
        };
        memory.counts.insertion_nanos.fetch_add(nanos(begun), Relaxed);
        Ok(())
    }
}

impl Memory {
    /// Reserves so many bytes, at most the limit of the space. Evicts entries until they are free.
    fn make_room(&self, space: &Arc<Space>, weight: usize) -> Result<(), Error> {
        while !space.reserve(weight) {
            // Others may have reserved the room and have not inserted yet.
            self.evict([space]).ok_or_else(nothing_to_evict)?;
        }
        let reserve = |used: usize| (used + weight <= self.limit).then_some(used + weight);
        while self.used.fetch_update(Relaxed, Relaxed, reserve).is_err() {
            // What is reserved for a model by its quota is taken last, that of the model itself first.
            let own: Vec<_> = self.own.lock().values().cloned().collect();
            if self.evict([&self.common, space].into_iter().chain(&own)).is_none() {
                space.release(weight);
                return Err(nothing_to_evict());
            }
        }
        Ok(())
    }

    /// Evicts an entry of the first of the spaces that has one.
    fn evict<'a>(&self, spaces: impl IntoIterator<Item = &'a Arc<Space>>) -> Option<()> {
        let freed = spaces.into_iter().find_map(|space| space.evict())?;
        self.used.fetch_sub(freed, Relaxed);
        self.counts.evictions.fetch_add(1, Relaxed);
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

    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>> {
        Box::pin(ready(self.found(key)))
    }

    fn look_up_at_once(&self, key: &str) -> Option<Result<Option<CachedAnswer>, Error>> {
        Some(self.found(key))
    }

    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, terms: StorageTerms) -> CacheFuture<()> {
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
        let (entries, bytes) = self.space.remove_all(prefix);
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
        own.retain(|_, space| Arc::strong_count(space) > 1 || space.used() > 0);
        let space = own.entry(model.clone()).or_insert_with(|| Arc::new(Space::new(bytes)));
        space.set_limit(bytes);
        Ok(Arc::new(Self { memory: self.memory.clone(), space: space.clone() }))
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.memory.secret)
    }
}

#[cfg(test)]
mod tests;
