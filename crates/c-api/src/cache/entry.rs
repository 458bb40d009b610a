//! The entries of a response cache, and how the cache copies them.
use std::{ffi::c_void, mem::MaybeUninit, ptr};

use inference::lock::Mutex;
use vocabulary::Error;

use crate::{
    handle::{Handle, borrow, give, guard, put, take},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{MEMORY_CPU, MEMORY_CPU_PINNED},
        error::CError,
    },
};

/// What happens to the buffers of an entry when the cache calls the copy function.
pub(super) type Copy<'a> = dyn FnMut(&[EntryBuffer]) -> Result<(), Error> + 'a;

/// One buffer of an entry, in the cache's memory.
#[derive(Debug, Clone)]
pub(super) struct EntryBuffer {
    pub(super) base: *mut u8,
    pub(super) size: usize,
}

impl EntryBuffer {
    /// # Safety
    /// The memory is valid, and no thread writes it during the copy.
    pub(super) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { crate::handle::array(self.base, self.size) }.unwrap_or_default()
    }

    /// # Safety
    /// The memory is valid, and no other thread uses it during the copy.
    pub(super) unsafe fn place<'a>(&self) -> &'a mut [MaybeUninit<u8>] {
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
    buffers: Mutex<Vec<EntryBuffer>>,
}

// SAFETY: the addresses are the cache's; any thread may use them.
unsafe impl Send for CacheEntry {}
// SAFETY: the same.
unsafe impl Sync for CacheEntry {}

impl Handle for CacheEntry {
    const NAME: &'static str = "TRITONCACHE_CacheEntry";
}

impl CacheEntry {
    /// An entry with one buffer of that size, whose memory the cache has not reserved yet.
    pub(super) fn of_size(size: usize) -> Self {
        Self { buffers: Mutex::new(vec![EntryBuffer { base: ptr::null_mut(), size }]) }
    }

    fn add(&self, base: *mut u8, attributes: &BufferAttributes) -> Result<(), Error> {
        if attributes.byte_size() == 0 {
            return Err(Error::invalid("Buffer byte size was zero"));
        }
        in_host_memory(attributes)?;
        self.buffers.lock().push(EntryBuffer { base, size: attributes.byte_size() });
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

impl Allocator {
    /// Lets the cache call `copy`, which must live while the cache is in its call.
    pub(super) fn new(copy: &mut &mut Copy<'_>) -> Self {
        Self { copy: Mutex::new(Copying { copy: ptr::from_mut(copy).cast(), done: false }) }
    }

    /// Whether the cache has called it, and it has succeeded.
    pub(super) fn has_copied(&self) -> bool {
        self.copy.lock().done
    }
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
        *buffer = EntryBuffer { base: new_base.cast(), size };
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
