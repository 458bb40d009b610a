//! A response cache in this process's memory that counts, and fails when it is told to.
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use inference::{
    Error, ErrorCode,
    cache::{CacheFinder, ResponseCache, no_library},
};
use parking_lot::Mutex;

/// Keeps everything for good, and speaks as Triton's `local` cache does.
#[derive(Debug, Default)]
pub struct MemoryCache {
    entries: Mutex<BTreeMap<String, Vec<Vec<u8>>>>,
    /// Bytes that one entry may have.
    limit: Option<usize>,
    broken: AtomicBool,
    lookups: AtomicUsize,
    inserts: AtomicUsize,
}

impl MemoryCache {
    /// An empty cache that refuses entries of more than so many bytes.
    pub fn limited_to(bytes: usize) -> Self {
        Self { limit: Some(bytes), ..Self::default() }
    }

    /// From now on everything fails, or nothing any more.
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, SeqCst);
    }

    /// Replaces what is stored under each key.
    pub fn damage(&self, damage: impl Fn(&mut Vec<Vec<u8>>)) {
        self.entries.lock().values_mut().for_each(damage);
    }

    /// The keys of all entries, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// How often something was looked for.
    pub fn lookups(&self) -> usize {
        self.lookups.load(SeqCst)
    }

    /// How often something was to be stored, with success or without.
    pub fn inserts(&self) -> usize {
        self.inserts.load(SeqCst)
    }

    fn check(&self) -> Result<(), Error> {
        if self.broken.load(SeqCst) { Err(Error::internal("the cache is out of order")) } else { Ok(()) }
    }
}

impl ResponseCache for MemoryCache {
    fn name(&self) -> &str {
        "local"
    }

    fn lookup(&self, key: &str, take: &mut dyn FnMut(&[&[u8]]) -> Result<(), Error>) -> Result<bool, Error> {
        self.lookups.fetch_add(1, SeqCst);
        self.check()?;
        let entries = self.entries.lock();
        let Some(entry) = entries.get(key) else { return Ok(false) };
        take(&entry.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        Ok(true)
    }

    fn insert(
        &self,
        key: &str,
        sizes: &[usize],
        fill: &mut dyn FnMut(&mut [&mut [u8]]),
    ) -> Result<(), Error> {
        self.inserts.fetch_add(1, SeqCst);
        self.check()?;
        let mut entries = self.entries.lock();
        if entries.contains_key(key) {
            return Err(Error::new(ErrorCode::AlreadyExists, format!("key '{key}' already exists")));
        }
        let needed: usize = sizes.iter().sum();
        if let Some(limit) = self.limit.filter(|&limit| needed > limit) {
            return Err(Error::internal(format!(
                "Requested byte_size: {needed} is greater than total cache size: {limit}"
            )));
        }
        let mut entry: Vec<_> = sizes.iter().map(|&size| vec![0; size]).collect();
        fill(&mut entry.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        entries.insert(key.to_owned(), entry);
        Ok(())
    }
}

/// Finds one cache, under the name `local`.
#[derive(Debug, Default)]
pub struct MemoryCaches {
    cache: Arc<MemoryCache>,
}

impl MemoryCaches {
    /// The cache that is found.
    pub fn cache(&self) -> &Arc<MemoryCache> {
        &self.cache
    }
}

impl CacheFinder for MemoryCaches {
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error> {
        if name != self.cache.name() {
            return Err(no_library(name, directory));
        }
        if !settings.contains_key("size") {
            return Err(Error::invalid(
                "Failed to initialize LocalCache: config didn't contain a valid 'size' field.",
            ));
        }
        Ok(self.cache.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(cache: &MemoryCache, key: &str, bytes: &[u8]) -> Result<(), Error> {
        cache.insert(key, &[bytes.len()], &mut |buffers| buffers[0].copy_from_slice(bytes))
    }

    fn lookup(cache: &MemoryCache, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut taken = None;
        cache.lookup(key, &mut |buffers| {
            taken = Some(buffers.concat());
            Ok(())
        })?;
        Ok(taken)
    }

    #[test]
    fn the_first_entry_of_a_key_stays() {
        let cache = MemoryCache::default();
        assert_eq!(lookup(&cache, "k").unwrap(), None);
        insert(&cache, "k", b"one").unwrap();
        assert_eq!(insert(&cache, "k", b"two").unwrap_err().code, ErrorCode::AlreadyExists);
        assert_eq!(lookup(&cache, "k").unwrap(), Some(b"one".to_vec()));
        assert_eq!((cache.lookups(), cache.inserts(), cache.keys()), (2, 2, vec!["k".to_owned()]));
    }

    #[test]
    fn what_is_too_large_or_comes_while_it_is_broken_is_refused() {
        let cache = MemoryCache::limited_to(2);
        assert_eq!(
            insert(&cache, "k", b"one").unwrap_err().to_string(),
            "Requested byte_size: 3 is greater than total cache size: 2"
        );
        cache.set_broken(true);
        assert!(insert(&cache, "k", b"1").is_err() && lookup(&cache, "k").is_err());
        cache.set_broken(false);
        assert!(insert(&cache, "k", b"1").is_ok());
    }
}
