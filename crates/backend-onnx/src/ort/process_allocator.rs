//! The allocator of the process as the allocator of sessions, and how much of it each session holds.
//!
//! The arena that a session has otherwise keeps what its largest run has needed until the session ends. The process's
//! allocator returns freed memory to the system, and reuses what it has not yet returned. A session uses it if its
//! options say so. What a session holds as long as it lives, its weights, is mapped: it goes back when the session ends, also
//! if the thread that has loaded it allocates nothing more.
//!
//! Before each block is a [`BlockHeader`].
use std::{
    alloc::{self, Layout},
    cell::Cell,
    ffi::c_void,
    ptr::{self, NonNull},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use ort_sys as sys;

use super::{OrtError, Runtime, runtime::host_memory};

/// The version of the table. No release looks for functions of a newer version in it.
const TABLE_VERSION: u32 = 17;

/// How the runtime's own allocator aligns blocks. A header is as long.
const ALIGNMENT: usize = 64;

/// More than the bytes that kernels may read after the end of a block.
// As ONNX Runtime: allocator.cc, MLAS_SYMM_QGEMM_BUF_OVERRUN.
const OVERREAD: usize = 64;

/// Shorter blocks are not mapped.
const SHORTEST_MAPPED: usize = 256 << 10;

/// The bytes of the blocks that a session holds.
#[derive(Default)]
pub(super) struct SessionBytes {
    held: AtomicU64,
    is_loaded: AtomicBool,
}

thread_local! {
    /// Counts the blocks that this thread allocates; null if nobody counts them. Not null while [`counted`] runs only.
    static COUNTER: Cell<*const SessionBytes> = const { Cell::new(ptr::null()) };
}

impl SessionBytes {
    pub(super) fn get(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// The session has been loaded: what it allocates from now on is of its runs.
    pub(super) fn loaded(&self) {
        self.is_loaded.store(true, Relaxed);
    }
}

/// Does `work`, and counts the blocks that this thread allocates meanwhile for `session`. They are counted until they are
/// freed. Blocks that other threads of the runtime allocate are not counted.
pub(super) fn counted<T>(session: Option<&Arc<SessionBytes>>, work: impl FnOnce() -> T) -> T {
    struct Restored(*const SessionBytes);
    impl Drop for Restored {
        fn drop(&mut self) {
            COUNTER.set(self.0);
        }
    }
    let _restored = Restored(COUNTER.replace(session.map_or(ptr::null(), Arc::as_ptr)));
    work()
}

impl Runtime {
    /// Offers the allocator of the process to sessions that are created from now on.
    ///
    /// # Errors
    /// The errors of the runtime, or another library of the process has the allocator, or the environment has another one.
    pub(crate) fn offer_process_allocator(&self) -> Result<(), OrtError> {
        let allocator = ProcessAllocator::of(self)?;
        // SAFETY: the allocator is never dropped.
        unsafe { self.share_allocator(ptr::from_ref(allocator).cast_mut().cast()) }
    }
}

/// What is before each block.
#[repr(C, align(64))]
struct BlockHeader {
    /// The bytes of the block with this header.
    size: usize,
    /// Counts the block, and is kept alive by it. Null if nobody does.
    counter: *const SessionBytes,
    origin: BlockOrigin,
}

/// What has made a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockOrigin {
    /// The allocator of the process.
    Process,
    /// The system, for this block alone.
    Mapping,
    /// The default allocator of the runtime.
    Runtime,
}

const _: () = assert!(size_of::<BlockHeader>() == ALIGNMENT);

/// Allocates in the runtime.
///
/// It may throw an exception of C++, which the runtime catches.
type Allocate = unsafe extern "C-unwind" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;
/// [`Allocate`] as the table declares it.
type DeclaredAllocate = unsafe extern "system" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;

/// The allocator that an environment gets.
///
/// Invariant: `table` is the first field, because the runtime passes a pointer to it that becomes one to the whole.
#[repr(C)]
struct ProcessAllocator {
    table: sys::OrtAllocator,
    /// Of the library that uses this allocator. It lives as long as the process.
    api: NonNull<sys::OrtApi>,
    /// Describes host memory. It is never released.
    memory: NonNull<sys::OrtMemoryInfo>,
    /// The runtime's default allocator, which lives as long as the process.
    default: NonNull<sys::OrtAllocator>,
    default_allocate: Allocate,
    default_free: unsafe extern "system" fn(*mut sys::OrtAllocator, *mut c_void),
    /// The bytes of memory of the machine.
    machine_bytes: usize,
}

// SAFETY: nothing changes after it has been made; the runtime's default allocator may be used by any thread.
unsafe impl Send for ProcessAllocator {}
// SAFETY: as above.
unsafe impl Sync for ProcessAllocator {}

impl ProcessAllocator {
    /// The allocator for the environment of that runtime. There is one for each process, because a process has one library.
    ///
    /// # Errors
    /// The errors of the runtime, or another library of the process has the allocator.
    fn of(runtime: &Runtime) -> Result<&'static Self, OrtError> {
        static MADE: OnceLock<Result<ProcessAllocator, OrtError>> = OnceLock::new();
        let made = MADE.get_or_init(|| Self::new(runtime)).as_ref().map_err(OrtError::clone)?;
        if ptr::eq(made.api.as_ptr(), runtime.api()) {
            Ok(made)
        } else {
            Err(OrtError::invalid_argument("another library has the allocator"))
        }
    }

    fn new(runtime: &Runtime) -> Result<Self, OrtError> {
        let missing = || OrtError::invalid_argument("the default allocator has no functions");
        let default = NonNull::new(runtime.allocator()).ok_or_else(missing)?;
        // SAFETY: the runtime's default allocator lives, and its table does not change.
        let (allocate, free) = unsafe { ((*default.as_ptr()).Alloc, (*default.as_ptr()).Free) };
        let table = sys::OrtAllocator {
            version: TABLE_VERSION,
            // SAFETY: the same type but for the word that it may unwind. Only the runtime calls it, which expects that.
            Alloc: Some(unsafe { std::mem::transmute::<Allocate, DeclaredAllocate>(allocate_block) }),
            Free: Some(free_block),
            Info: Some(memory_of),
            Reserve: None,
            GetStats: None,
            AllocOnStream: None,
            Shrink: None,
        };
        let api = NonNull::new(runtime.api().cast_mut()).ok_or_else(missing)?;
        Ok(Self {
            table,
            api,
            memory: host_memory(api, sys::OrtAllocatorType::OrtDeviceAllocator)?,
            default,
            // SAFETY: as above; this function may throw.
            default_allocate: unsafe {
                std::mem::transmute::<DeclaredAllocate, Allocate>(allocate.ok_or_else(missing)?)
            },
            default_free: free.ok_or_else(missing)?,
            machine_bytes: machine_bytes(),
        })
    }

    /// A block of `len` bytes. Null if there are none.
    ///
    /// Throws an exception of C++ if there is no memory: the runtime expects one, and does not look for null.
    fn allocate(&self, len: usize) -> *mut c_void {
        if len == 0 {
            return ptr::null_mut();
        }
        let size = len.saturating_add(ALIGNMENT + OVERREAD).min(isize::MAX as usize);
        let counter = COUNTER.get();
        // SAFETY: a counter that is not null is that of an `Arc` that lives while `counted` runs.
        let session = unsafe { counter.as_ref() };
        let mut block = ptr::null_mut();
        let mut origin = BlockOrigin::Process;
        // An allocator may reserve addresses without memory. Then a run that asks for too much would end the process.
        if size <= self.machine_bytes {
            let is_weight = session.is_some_and(|session| !session.is_loaded.load(Relaxed));
            if is_weight && size >= SHORTEST_MAPPED {
                (block, origin) = (mapped(size), BlockOrigin::Mapping);
            } else if let Ok(layout) = Layout::from_size_align(size, ALIGNMENT) {
                // SAFETY: the size is not zero.
                block = unsafe { alloc::alloc(layout) };
            }
        }
        if block.is_null() {
            origin = BlockOrigin::Runtime;
            // SAFETY: the allocator lives. If it throws, nothing here needs to be undone.
            block = unsafe { (self.default_allocate)(self.default.as_ptr(), size) }.cast();
            if block.is_null() {
                return ptr::null_mut();
            }
        }
        if let Some(session) = session {
            session.held.fetch_add(size as u64, Relaxed);
            // SAFETY: as above; the block owns this reference.
            unsafe { Arc::increment_strong_count(counter) };
        }
        let header = block.cast::<BlockHeader>();
        // SAFETY: the block is new, aligned, and longer than its header.
        unsafe {
            header.write(BlockHeader { size, counter, origin });
            header.add(1).cast()
        }
    }

    /// # Safety
    /// [`ProcessAllocator::allocate`] has returned `block`, and nobody uses it any more.
    unsafe fn free(&self, block: *mut c_void) {
        if block.is_null() {
            return;
        }
        // SAFETY: each block that is not null has a header.
        let (header, BlockHeader { size, counter, origin }) = unsafe {
            let header = block.cast::<BlockHeader>().sub(1);
            (header, header.read())
        };
        if !counter.is_null() {
            // SAFETY: the reference that the block owns.
            let session = unsafe { Arc::from_raw(counter) };
            session.held.fetch_sub(size as u64, Relaxed);
        }
        // SAFETY: what has made the block frees it, in the same layout.
        unsafe {
            match origin {
                BlockOrigin::Process => {
                    alloc::dealloc(header.cast(), Layout::from_size_align_unchecked(size, ALIGNMENT));
                }
                BlockOrigin::Mapping => {
                    // It fails only if the address is wrong.
                    let unmapped = libc::munmap(header.cast(), size);
                    debug_assert_eq!(unmapped, 0);
                }
                BlockOrigin::Runtime => (self.default_free)(self.default.as_ptr(), header.cast()),
            }
        }
    }
}

/// # Safety
/// `this` is the pointer of a [`ProcessAllocator`].
unsafe extern "C-unwind" fn allocate_block(this: *mut sys::OrtAllocator, len: usize) -> *mut c_void {
    // SAFETY: as the caller promises; it lives as long as the process.
    unsafe { &*this.cast::<ProcessAllocator>() }.allocate(len)
}

/// # Safety
/// `this` is the pointer of a [`ProcessAllocator`], and `block` is null or one of its blocks, which nobody uses any more.
unsafe extern "system" fn free_block(this: *mut sys::OrtAllocator, block: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { (*this.cast::<ProcessAllocator>()).free(block) }
}

/// # Safety
/// `this` is the pointer of a [`ProcessAllocator`].
unsafe extern "system" fn memory_of(this: *const sys::OrtAllocator) -> *const sys::OrtMemoryInfo {
    // SAFETY: as the caller promises.
    unsafe { (*this.cast::<ProcessAllocator>()).memory.as_ptr() }
}

/// A block of whole pages, which are zero. Null if the system refuses it.
fn mapped(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping concerns no other memory.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if address == libc::MAP_FAILED { ptr::null_mut() } else { address.cast() }
}

/// The bytes of memory of the machine; as many as there can be if the system does not tell.
fn machine_bytes() -> usize {
    // SAFETY: both only read.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => usize::MAX,
    }
}
