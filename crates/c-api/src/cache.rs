//! `tritoncache.h`: response caches in shared libraries, and the functions they call.
//!
//! The cache owns the memory of its entries. The server owns the bytes that it stores and reads. The cache calls
//! [`TRITONCACHE_Copy`] to copy between them, while it holds the locks that protect its memory. The functions of a
//! cache may take long, so they run on threads of their own (`workers.rs`).
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_void},
    mem::MaybeUninit,
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
    time::Duration,
};

use inference::{
    Error, ErrorCode,
    cache::{CacheFinder, CacheFuture, CachedAnswer, ResponseCache, StorageTerms, no_library, packed},
    lock::Mutex,
};

use crate::{
    handle::{Handle, borrow, give, guard, put, take},
    plugin::Library,
    types::{
        buffer_attributes::BufferAttributes,
        enums::{MEMORY_CPU, MEMORY_CPU_PINNED},
        error::{CError, c_text, consume},
    },
};

mod workers;

use workers::Workers;

type Initialize = unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_char) -> *mut CError;
type Finalize = unsafe extern "C-unwind" fn(*mut c_void) -> *mut CError;
type Pass =
    unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *mut CacheEntry, *mut Allocator) -> *mut CError;

/// How long the end of a cache waits for its calls, and for its library to finalize it.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// What happens to the buffers of an entry when the cache calls the copy function.
type Copy<'a> = dyn FnMut(&[Buffer]) -> Result<(), Error> + 'a;

/// Caches in shared libraries.
#[derive(Debug, Default)]
pub struct Caches;

impl Caches {
    /// Whether there is a library of a cache with that name.
    pub fn has(name: &str, directory: &Path) -> bool {
        library(name, directory).is_file()
    }
}

fn library(name: &str, directory: &Path) -> PathBuf {
    directory.join(name).join(format!("libtritoncache_{name}.so"))
}

impl CacheFinder for Caches {
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

    /// Lets the library look up or insert. `copy` runs when the library calls [`TRITONCACHE_Copy`].
    fn pass(&self, function: Pass, key: &str, entry: &CacheEntry, copy: &mut Copy) -> Result<(), Error> {
        let key: CString = c_text(key);
        let mut copy = copy;
        let copying = Copying { copy: (&raw mut copy).cast(), done: false };
        let allocator = Allocator { copy: Mutex::new(copying) };
        let (entry, shown) = (ptr::from_ref(entry).cast_mut(), ptr::from_ref(&allocator).cast_mut());
        // SAFETY: everything lives during the call, after which the library keeps nothing of it.
        unsafe { consume(function(self.cache, key.as_ptr(), entry, shown))? };
        let copied = allocator.copy.lock().done;
        if copied {
            Ok(())
        } else {
            Err(Error::internal(format!("cache '{}' has not copied the entry", self.name)))
        }
    }
}

impl Cache {
    /// Blocks as long as the library does.
    fn look_up(&self, key: &str) -> Result<Option<CachedAnswer>, Error> {
        let entry = CacheEntry::default();
        let mut answer = None;
        let mut copy = |buffers: &[Buffer]| {
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
        let entry = CacheEntry { buffers: Mutex::new(vec![Buffer { base: ptr::null_mut(), size }]) };
        let mut copy = |buffers: &[Buffer]| match buffers {
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
    workers: Workers<Cache>,
}

impl CLibraryCache {
    fn new(cache: Cache) -> Result<Self, Error> {
        let name = cache.name.clone();
        let workers = Workers::start(cache, LAST_CALLS).map_err(|error| {
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

    fn insert(&self, key: &str, answer: Arc<CachedAnswer>, _: StorageTerms) -> CacheFuture<()> {
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

/// One buffer of an entry, in the cache's memory.
#[derive(Debug, Clone)]
struct Buffer {
    base: *mut u8,
    size: usize,
}

impl Buffer {
    /// # Safety
    /// The memory is valid, and no thread writes it during the copy.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { crate::handle::array(self.base, self.size) }.unwrap_or_default()
    }

    /// # Safety
    /// The memory is valid, and no other thread uses it during the copy.
    unsafe fn place<'a>(&self) -> &'a mut [MaybeUninit<u8>] {
        if self.base.is_null() {
            return &mut [];
        }
        // SAFETY: as the caller promises. The library need not have written the memory.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.size) }
    }
}

/// `TRITONCACHE_CacheEntry`: the buffers of one entry.
#[derive(Debug, Default)]
pub struct CacheEntry {
    buffers: Mutex<Vec<Buffer>>,
}

// SAFETY: the addresses are the cache's; any thread may use them.
unsafe impl Send for CacheEntry {}
// SAFETY: the same.
unsafe impl Sync for CacheEntry {}

impl Handle for CacheEntry {
    const NAME: &'static str = "TRITONCACHE_CacheEntry";
}

impl CacheEntry {
    fn add(&self, base: *mut u8, attributes: &BufferAttributes) -> Result<(), Error> {
        if attributes.byte_size() == 0 {
            return Err(Error::invalid("Buffer byte size was zero"));
        }
        in_host_memory(attributes)?;
        self.buffers.lock().push(Buffer { base, size: attributes.byte_size() });
        Ok(())
    }
}

/// `TRITONCACHE_Allocator`: what happens when the cache calls the copy function.
#[derive(Debug)]
pub struct Allocator {
    copy: Mutex<Copying>,
}

#[derive(Debug)]
struct Copying {
    /// A `&mut Copy` without its lifetime. It is set while the cache is in its call.
    copy: *mut c_void,
    done: bool,
}

impl Handle for Allocator {
    const NAME: &'static str = "TRITONCACHE_Allocator";
}

/// Returns the version of the cache interface: 0.1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_ApiVersion(major: *mut u32, minor: *mut u32) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { put(major, 0).and_then(|()| put(minor, 1)) })
}

/// Makes an empty entry. The caller deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryNew(entry: *mut *mut CacheEntry) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { give(entry, CacheEntry::default()) })
}

/// Deletes an entry of [`TRITONCACHE_CacheEntryNew`], but not the memory of its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryDelete(entry: *mut CacheEntry) -> *mut CError {
    // SAFETY: null or an entry that the caller does not use after this.
    guard(|| unsafe { take(entry) }.map(drop))
}

/// Returns the number of buffers of the entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryBufferCount(
    entry: *mut CacheEntry,
    count: *mut usize,
) -> *mut CError {
    // SAFETY: null or a live entry; null or writable.
    guard(|| unsafe { put(count, borrow(entry)?.buffers.lock().len()) })
}

fn in_host_memory(attributes: &BufferAttributes) -> Result<(), Error> {
    if [MEMORY_CPU, MEMORY_CPU_PINNED].contains(&attributes.memory().0) {
        return Ok(());
    }
    Err(Error::invalid("Only buffers in CPU memory are allowed in cache currently"))
}

fn no_such_buffer() -> Error {
    Error::invalid("index was greater than count")
}

/// Adds a buffer of the cache's memory. The memory must stay valid until it has been copied. The attributes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryAddBuffer(
    entry: *mut CacheEntry,
    base: *mut c_void,
    attributes: *mut BufferAttributes,
) -> *mut CError {
    guard(|| {
        if base.is_null() {
            return Err(Error::invalid("entry, base, or attrs was nullptr"));
        }
        // SAFETY: null or live.
        let (entry, attributes) = unsafe { (borrow(entry)?, borrow(attributes)?) };
        entry.add(base.cast(), attributes)
    })
}

/// Returns the address of a buffer, null if it has none yet. Writes its size into attributes that the caller owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryGetBuffer(
    entry: *mut CacheEntry,
    index: usize,
    base: *mut *mut c_void,
    attributes: *mut BufferAttributes,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live.
        let (entry, attributes) = unsafe { (borrow(entry)?, borrow(attributes)?) };
        let buffer = entry.buffers.lock().get(index).cloned().ok_or_else(no_such_buffer)?;
        attributes.copy_from(&BufferAttributes::host(buffer.size));
        // SAFETY: null or writable.
        unsafe { put(base, buffer.base.cast()) }
    })
}

/// Sets the address of a buffer and, if attributes are given, its size. The attributes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntrySetBuffer(
    entry: *mut CacheEntry,
    index: usize,
    new_base: *mut c_void,
    attributes: *mut BufferAttributes,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live.
        let (entry, attributes) = unsafe { (borrow(entry)?, attributes.as_ref()) };
        attributes.map_or(Ok(()), in_host_memory)?;
        let mut buffers = entry.buffers.lock();
        let buffer = buffers.get_mut(index).ok_or_else(no_such_buffer)?;
        let size = attributes.map_or(buffer.size, BufferAttributes::byte_size);
        *buffer = Buffer { base: new_base.cast(), size };
        Ok(())
    })
}

/// Copies between the entry's buffers and the server's. A look-up copies out of the cache, an insertion copies into it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_Copy(allocator: *mut Allocator, entry: *mut CacheEntry) -> *mut CError {
    guard(|| {
        // SAFETY: null or live.
        let (allocator, entry) = unsafe { (borrow(allocator)?, borrow(entry)?) };
        let buffers = entry.buffers.lock().clone();
        let mut copying = allocator.copy.lock();
        // SAFETY: the closure lives while the cache is in its call; the lock makes this the only reference.
        unsafe { (*copying.copy.cast::<&mut Copy>())(&buffers)? };
        copying.done = true;
        Ok(())
    })
}
