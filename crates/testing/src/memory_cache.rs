//! A response cache in the memory of this process. It counts its calls, and a test can make it fail.
use std::{
    collections::BTreeMap,
    future::ready,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use inference::{
    cache::{CacheFinder, CacheFuture, CachedAnswer, ResponseCache, StorageRules, no_library, packed},
    lock::Mutex,
};
use tokio::sync::Notify;
use vocabulary::{Error, ErrorCode};

/// Keeps every entry until the end, with the error texts of Triton's `local` cache.
#[derive(Debug, Default)]
pub struct MemoryCache {
    entries: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Maximum size of an entry in bytes.
    limit: Option<usize>,
    broken: AtomicBool,
    never_waits: bool,
    lookups: AtomicUsize,
    inserts: AtomicUsize,
    /// Look-ups that begin while it is set wait until it is notified.
    held: Mutex<Option<Arc<Notify>>>,
    /// The same for insertions.
    held_insertions: Mutex<Option<Arc<Notify>>>,
}

impl MemoryCache {
    /// An empty cache that refuses entries of more than so many bytes.
    pub fn limited_to(bytes: usize) -> Self {
        Self { limit: Some(bytes), ..Self::default() }
    }

    /// An empty cache whose look-ups are done at once.
    pub fn that_never_waits() -> Self {
        Self { never_waits: true, ..Self::default() }
    }

    /// Makes all entries older.
    pub fn age_by(&self, age: Duration) {
        for entry in self.entries.lock().values_mut() {
            let Ok(mut answer) = packed::read(entry) else { continue };
            answer.computed = answer.computed.saturating_sub(age);
            // The size depends on no number.
            let _ = packed::write(&answer, entry);
        }
    }

    /// From now on every call fails, or none.
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, SeqCst);
    }

    /// From now on look-ups wait until the test notifies the result.
    pub fn hold_look_ups(&self) -> Arc<Notify> {
        self.held.lock().get_or_insert_default().clone()
    }

    /// From now on insertions wait until the test notifies the result.
    pub fn hold_insertions(&self) -> Arc<Notify> {
        self.held_insertions.lock().get_or_insert_default().clone()
    }

    /// Replaces the stored bytes of each entry.
    pub fn damage(&self, damage: impl Fn(&mut Vec<u8>)) {
        self.entries.lock().values_mut().for_each(damage);
    }

    /// The keys of all entries, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// The number of look-ups.
    pub fn lookups(&self) -> usize {
        self.lookups.load(SeqCst)
    }

    /// The number of insertions, with success or without.
    pub fn inserts(&self) -> usize {
        self.inserts.load(SeqCst)
    }

    fn check(&self) -> Result<(), Error> {
        if self.broken.load(SeqCst) { Err(Error::internal("the cache is out of order")) } else { Ok(()) }
    }
}

impl MemoryCache {
    fn read(&self, key: &str) -> Result<Option<CachedAnswer>, Error> {
        self.lookups.fetch_add(1, SeqCst);
        self.check()?;
        self.entries.lock().get(key).map(|entry| packed::read(entry)).transpose()
    }

    fn write(&self, key: &str, answer: &CachedAnswer, terms: StorageRules) -> Result<(), Error> {
        self.inserts.fetch_add(1, SeqCst);
        self.check()?;
        let mut entries = self.entries.lock();
        if entries.contains_key(key) && !terms.replaces {
            return Err(Error::new(ErrorCode::AlreadyExists, format!("key '{key}' already exists")));
        }
        let entry = packed::packed(answer)?;
        let needed = entry.len();
        if let Some(limit) = self.limit.filter(|&limit| needed > limit) {
            return Err(Error::internal(format!(
                "Requested byte_size: {needed} is greater than total cache size: {limit}"
            )));
        }
        entries.insert(key.to_owned(), entry);
        Ok(())
    }
}

impl ResponseCache for MemoryCache {
    fn name(&self) -> &str {
        "local"
    }

    fn outlives_server(&self) -> bool {
        true
    }

    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>> {
        let found = self.read(key);
        let held = self.held.lock().clone();
        match held {
            None => Box::pin(ready(found)),
            Some(held) => Box::pin(async move {
                held.notified().await;
                found
            }),
        }
    }

    fn look_up_at_once(&self, key: &str) -> Option<Result<Option<CachedAnswer>, Error>> {
        self.never_waits.then(|| self.read(key))
    }

    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, terms: StorageRules) -> CacheFuture<()> {
        let Some(held) = self.held_insertions.lock().clone() else {
            return Box::pin(ready(self.write(key, &answer, terms)));
        };
        let (entries, key) = (self.entries.clone(), key.to_owned());
        Box::pin(async move {
            held.notified().await;
            entries.lock().insert(key, packed::packed(&answer)?);
            Ok(())
        })
    }

    fn replaces_answers(&self) -> bool {
        true
    }

    fn remove_all(&self, prefix: &str) -> CacheFuture<u64> {
        let mut entries = self.entries.lock();
        let before = entries.len();
        entries.retain(|key, _| !key.starts_with(prefix));
        Box::pin(ready(Ok((before - entries.len()) as u64)))
    }
}

/// Finds one cache, under the name `local`.
#[derive(Debug, Default)]
pub struct MemoryCaches {
    cache: Arc<MemoryCache>,
}

impl MemoryCaches {
    /// The cache that this finder returns.
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
    use inference::Response;
    use vocabulary::Parameter;

    use super::*;

    fn answer(text: &'static str) -> CachedAnswer {
        let parameters = vec![("text".into(), Parameter::String(text.into()))];
        Response { outputs: vec![], parameters }.into()
    }

    fn write(cache: &MemoryCache, text: &'static str) -> Result<(), Error> {
        cache.write("k", &answer(text), StorageRules::default())
    }

    #[test]
    fn the_first_entry_of_a_key_stays() {
        let cache = MemoryCache::default();
        assert!(cache.read("k").unwrap().is_none());
        write(&cache, "one").unwrap();
        assert_eq!(write(&cache, "two").unwrap_err().code, ErrorCode::AlreadyExists);
        let found = cache.read("k").unwrap().unwrap();
        assert_eq!(found.responses[0].parameters, answer("one").responses[0].parameters);
        assert_eq!((cache.lookups(), cache.inserts(), cache.keys()), (2, 2, vec!["k".to_owned()]));
    }

    #[test]
    fn what_is_too_large_or_comes_while_it_is_broken_is_refused() {
        let small = packed::size(&answer("1")).unwrap();
        let cache = MemoryCache::limited_to(small);
        let error = write(&cache, "one").unwrap_err().to_string();
        assert!(error.ends_with(&format!("is greater than total cache size: {small}")), "{error}");
        cache.set_broken(true);
        assert!(write(&cache, "1").is_err() && cache.read("k").is_err());
        cache.set_broken(false);
        assert!(write(&cache, "1").is_ok());
    }
}
