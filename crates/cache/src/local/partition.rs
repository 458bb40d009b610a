//! A part of the memory of a cache: its entries, and how many bytes they use.
//!
//! Models without a quota share one partition. A model with a quota has a partition of its own, which other models cannot
//! take.
use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use hashbrown::DefaultHashBuilder;
use inference::lock::Mutex;

use super::shard::Shard;

/// Threads that use a partition at the same time seldom meet in one of so many shards.
const SHARDS: usize = 16;

/// See the module documentation.
pub(super) struct CachePartition {
    limit: AtomicUsize,
    used: AtomicUsize,
    shards: [Mutex<Shard<Bytes>>; SHARDS],
    hasher: DefaultHashBuilder,
    /// Evictions so far: shards give room in turn, so that each keeps a share.
    turn: AtomicUsize,
}

impl CachePartition {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            shards: Default::default(),
            hasher: DefaultHashBuilder::default(),
            turn: AtomicUsize::new(0),
        }
    }

    fn shard(&self, key: &str) -> (&Mutex<Shard<Bytes>>, u64) {
        let hash = self.hasher.hash_one(key);
        // The index of a shard uses the other bits.
        (&self.shards[(hash >> 32) as usize % SHARDS], hash)
    }

    /// The most bytes that its entries may use.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Changes the limit. If the entries use more, later ones displace them.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// The bytes that entries use or have reserved.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The number of entries.
    pub(super) fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The value of a key. Counts as a use.
    pub(super) fn get(&self, key: &str) -> Option<Bytes> {
        let (shard, hash) = self.shard(key);
        shard.lock().get(hash, key).cloned()
    }

    /// Reserves so many bytes, if they fit below the limit.
    pub(super) fn reserve(&self, weight: usize) -> bool {
        let reserve = |used: usize| (used + weight <= self.limit()).then_some(used + weight);
        self.used.fetch_update(Relaxed, Relaxed, reserve).is_ok()
    }

    /// Gives reserved bytes back that no entry has used.
    pub(super) fn release(&self, weight: usize) {
        self.used.fetch_sub(weight, Relaxed);
    }

    /// Adds an entry whose bytes are reserved. Returns the bytes of an entry that it has replaced, or `None` if there is one
    /// and it may not be replaced.
    pub(super) fn insert(&self, key: &str, value: Bytes, weight: usize, replaces: bool) -> Option<usize> {
        let (shard, hash) = self.shard(key);
        let mut shard = shard.lock();
        let replaced = match replaces {
            true => shard.remove(hash, key).map_or(0, |(_, weight)| weight),
            false if shard.has(hash, key) => return None,
            false => 0,
        };
        shard.insert(hash, key, value, weight);
        drop(shard);
        self.release(replaced);
        Some(replaced)
    }

    /// Removes the entry that is worth least in the shard whose turn it is. Returns its bytes, or `None` if no shard has an
    /// entry.
    pub(super) fn evict(&self) -> Option<usize> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let evicted = (turn..turn + SHARDS).find_map(|turn| self.shards[turn % SHARDS].lock().evict());
        let (_, weight) = evicted?;
        self.release(weight);
        Some(weight)
    }

    /// Removes all entries whose keys begin with `prefix`. Returns how many there were, and their bytes.
    pub(super) fn remove_all(&self, prefix: &str) -> (u64, usize) {
        let removed = self.shards.iter().map(|shard| shard.lock().remove_all(prefix));
        let (entries, bytes) =
            removed.fold((0, 0), |(entries, bytes), (more, weight)| (entries + more, bytes + weight));
        self.release(bytes);
        (entries, bytes)
    }
}
