//! A response cache in a shared library.
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_void},
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
    time::Duration,
};

use inference::cache::{
    CacheFinder, CacheFuture, CachedAnswer, ResponseCache, StorageRules, no_library, packed,
};
use vocabulary::{Error, ErrorCode};

use super::{
    entry::{Allocator, CacheEntry, Copy, EntryBuffer},
    workers::CacheWorkers,
};
use crate::{
    plugin::Library,
    types::error::{CError, c_text, consume},
};

type Initialize = unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_char) -> *mut CError;
type Finalize = unsafe extern "C-unwind" fn(*mut c_void) -> *mut CError;
type Pass =
    unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *mut CacheEntry, *mut Allocator) -> *mut CError;

/// How long the end of a cache waits for its calls, and for its library to finalize it.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Caches in shared libraries.
#[derive(Debug, Default)]
pub struct CacheLibraries;

impl CacheLibraries {
    /// Whether there is a library of a cache with that name.
    pub fn has(name: &str, directory: &Path) -> bool {
        library(name, directory).is_file()
    }
}

fn library(name: &str, directory: &Path) -> PathBuf {
    directory.join(name).join(format!("libtritoncache_{name}.so"))
}

impl CacheFinder for CacheLibraries {
    fn open(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<Arc<dyn ResponseCache>, Error> {
        let path = library(name, directory);
        if !path.is_file() {
            return Err(no_library(name, directory));
        }
        Ok(Arc::new(CLibraryCache::new(Cache::start(name, settings, &path)?)?))
    }
}

/// An initialized cache; finalized when dropped.
#[derive(Debug)]
struct Cache {
    name: String,
    cache: *mut c_void,
    finalize: Finalize,
    lookup: Pass,
    insert: Pass,
    _library: Library,
}

// SAFETY: the header requires that many threads may use a cache at a time.
unsafe impl Send for Cache {}
// SAFETY: the same.
unsafe impl Sync for Cache {}

impl Cache {
    fn start(name: &str, settings: &BTreeMap<String, String>, path: &Path) -> Result<Self, Error> {
        let library = Library::open(path)?;
        let missing = |entry: &str| {
            let path = path.display();
            Error::not_found(format!("unable to find required entrypoint '{entry}' in library {path}"))
        };
        // SAFETY: the types are those of the header for these names.
        let (initialize, finalize, lookup, insert) = unsafe {
            (
                library.function::<Initialize>(c"TRITONCACHE_CacheInitialize"),
                library.function::<Finalize>(c"TRITONCACHE_CacheFinalize"),
                library.function::<Pass>(c"TRITONCACHE_CacheLookup"),
                library.function::<Pass>(c"TRITONCACHE_CacheInsert"),
            )
        };
        let initialize = initialize.ok_or_else(|| missing("TRITONCACHE_CacheInitialize"))?;
        let finalize = finalize.ok_or_else(|| missing("TRITONCACHE_CacheFinalize"))?;
        let lookup = lookup.ok_or_else(|| missing("TRITONCACHE_CacheLookup"))?;
        let insert = insert.ok_or_else(|| missing("TRITONCACHE_CacheInsert"))?;
        let config = c_text(&serde_json::json!(settings).to_string());
        let mut cache = ptr::null_mut();
        // SAFETY: a place and a text that live during the call.
        unsafe { consume(initialize(&raw mut cache, config.as_ptr()))? };
        Ok(Self { name: name.to_owned(), cache, finalize, lookup, insert, _library: library })
    }

    /// Lets the library look up or insert. `copy` runs when the library calls `TRITONCACHE_Copy`.
    fn pass(&self, function: Pass, key: &str, entry: &CacheEntry, copy: &mut Copy) -> Result<(), Error> {
        let key: CString = c_text(key);
        let mut copy = copy;
        let allocator = Allocator::new(&mut copy);
        let (entry, shown) = (ptr::from_ref(entry).cast_mut(), ptr::from_ref(&allocator).cast_mut());
        // SAFETY: everything lives during the call, after which the library keeps nothing of it.
        unsafe { consume(function(self.cache, key.as_ptr(), entry, shown))? };
        if allocator.has_copied() {
            Ok(())
        } else {
            Err(Error::internal(format!("cache '{}' has not copied the entry", self.name)))
        }
    }

    /// Blocks as long as the library does.
    fn look_up(&self, key: &str) -> Result<Option<CachedAnswer>, Error> {
        let entry = CacheEntry::default();
        let mut answer = None;
        let mut copy = |buffers: &[EntryBuffer]| {
            let [buffer] = buffers else { return Err(unexpected_count(buffers.len())) };
            // SAFETY: the library has added the buffer, which stays while the library is in its call.
            answer = Some(packed::read(unsafe { buffer.bytes() })?);
            Ok(())
        };
        match self.pass(self.lookup, key, &entry, &mut copy) {
            Ok(()) => Ok(answer),
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Blocks as long as the library does.
    fn insert(&self, key: &str, answer: &CachedAnswer) -> Result<(), Error> {
        let size = packed::size(answer)?;
        let entry = CacheEntry::of_size(size);
        let mut copy = |buffers: &[EntryBuffer]| match buffers {
            [buffer] if buffer.size == size && !buffer.base.is_null() => {
                // SAFETY: the library has reserved the buffer for the answer. It stays while the library is in its
                // call.
                packed::write_uninit(answer, unsafe { buffer.place() })
            }
            _ => Err(Error::internal(format!("cache '{}' has no room for what it was given", self.name))),
        };
        self.pass(self.insert, key, &entry, &mut copy)
    }
}

fn unexpected_count(count: usize) -> Error {
    Error::internal(format!(
        "Expected number of responses in cache does not match. Expected: 1, received: {count}"
    ))
}

/// A cache in a shared library. Its functions run on threads of their own.
#[derive(Debug)]
struct CLibraryCache {
    name: String,
    workers: CacheWorkers<Cache>,
}

impl CLibraryCache {
    fn new(cache: Cache) -> Result<Self, Error> {
        let name = cache.name.clone();
        let workers = CacheWorkers::start(cache, LAST_CALLS).map_err(|error| {
            Error::internal(format!("failed to start a thread of cache '{name}': {error}"))
        })?;
        Ok(Self { name, workers })
    }
}

impl ResponseCache for CLibraryCache {
    fn name(&self) -> &str {
        &self.name
    }

    fn look_up(&self, key: &str) -> CacheFuture<Option<CachedAnswer>> {
        let key = key.to_owned();
        self.workers.ask(move |cache| cache.look_up(&key))
    }

    /// Only the library knows, so it may.
    fn outlives_server(&self) -> bool {
        true
    }

    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, _: StorageRules) -> CacheFuture<()> {
        let key = key.to_owned();
        self.workers.run(move |cache| cache.insert(&key, &answer))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: initialized, and finalized once.
        if let Err(error) = unsafe { consume((self.finalize)(self.cache)) } {
            log::error!("failed to finalize cache: {error}");
        }
    }
}
