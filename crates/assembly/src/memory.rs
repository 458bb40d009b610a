//! Returns freed memory to the system, whatever allocator the process has.
//!
//! ONNX Runtime and plug-ins allocate with `malloc`. That is glibc's, unless the program is linked with another
//! allocator or one is preloaded (`LD_PRELOAD`). All of them keep freed memory for the next allocation. Each has a
//! function that returns it, which is found here by its name.
//!
//! glibc cannot return all of it later: it keeps the free end of each of its heaps, up to 64 MiB, and has one heap for a
//! few threads. So it is told beforehand not to keep memory while models are loaded or end, or while requests hold much.
//! mimalloc, the allocator of the server's own code, keeps what is freed for a second, and is told likewise.
use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_long, c_void},
    mem, ptr,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use inference::{MemoryFunctions, lock::Mutex};

/// How the engine lets this process return memory.
pub(crate) fn memory_functions() -> MemoryFunctions {
    // Now, because the search may wait for a library that is being loaded.
    LazyLock::force(&MIMALLOC);
    MemoryFunctions {
        models_change,
        memory_is_scarce,
        return_freed: return_freed_memory,
        return_all: return_all_memory,
    }
}

/// The reasons to return memory at once, in all servers of the process.
static REASONS: Mutex<ReturnReasons> =
    Mutex::new(ReturnReasons { changes: 0, scarcities: 0, purge_delay: None });

struct ReturnReasons {
    /// How many threads load or end models.
    changes: usize,
    /// How many servers have requests that hold much memory.
    scarcities: usize,
    /// How many milliseconds mimalloc keeps freed memory otherwise. `None` while it keeps it so long.
    purge_delay: Option<c_long>,
}

/// Thresholds of glibc, in bytes.
struct Thresholds {
    /// Blocks of this size are mapped. They go back when they are freed.
    map: c_int,
    /// A heap gives back its free end when that is larger.
    trim: c_int,
}

/// While there is no reason: what glibc reaches by itself as soon as a program has freed large blocks. A backend that
/// allocates some MiB for each execution gets the same memory again and again.
const KEEP: Thresholds = Thresholds { map: 32 << 20, trim: 64 << 20 };

/// While there is one. Large tensors and weights are mapped. The other memory of a model goes back with its last free.
const RETURN: Thresholds = Thresholds { map: 1 << 20, trim: 1 << 20 };

/// A thread begins or ends to load or to end a model.
fn models_change(begins: bool) {
    change(|reasons| count(&mut reasons.changes, begins));
}

/// The requests of a server begin or end to hold much memory.
fn memory_is_scarce(begins: bool) {
    change(|reasons| {
        count(&mut reasons.scarcities, begins);
        match (reasons.scarcities, reasons.purge_delay) {
            (0, Some(before)) => {
                replace_purge_delay(before);
                reasons.purge_delay = None;
            }
            (1, None) => reasons.purge_delay = replace_purge_delay(0),
            _ => {}
        }
    });
}

fn count(reasons: &mut usize, begins: bool) {
    *reasons = if begins { *reasons + 1 } else { reasons.saturating_sub(1) };
}

/// Changes the reasons. The lock is held while the allocators are told, so that they do what holds since the last change.
fn change(change: impl FnOnce(&mut ReturnReasons)) {
    let mut reasons = REASONS.lock();
    let has_reason = |reasons: &ReturnReasons| reasons.changes + reasons.scarcities > 0;
    let before = has_reason(&reasons);
    change(&mut reasons);
    match (before, has_reason(&reasons)) {
        (false, true) => set(&RETURN),
        (true, false) => set(&KEEP),
        _ => {}
    }
}

/// Sets how many milliseconds mimalloc keeps freed memory, and returns how many it did before. `None` if the process does
/// not have it, or if the operator has set this.
fn replace_purge_delay(milliseconds: c_long) -> Option<c_long> {
    let mimalloc = MIMALLOC.as_ref()?;
    // SAFETY: both may be called by any thread at any time; the number is that of an option.
    unsafe {
        let before = (mimalloc.get_option)(PURGE_DELAY_OPTION);
        (mimalloc.set_option)(PURGE_DELAY_OPTION, milliseconds);
        Some(before)
    }
}

/// Sets the thresholds, unless the operator has set some.
fn set(thresholds: &Thresholds) {
    let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    let variables = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];
    let is_set =
        tunables.contains("glibc.malloc.") || variables.iter().any(|name| std::env::var_os(name).is_some());
    if is_set {
        return;
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called by any thread at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, thresholds.map);
        libc::mallopt(libc::M_TRIM_THRESHOLD, thresholds.trim);
    }
}

/// `mallctl` of jemalloc: reads or writes a setting, or performs an action.
type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
/// `MallocExtension_ReleaseFreeMemory` of tcmalloc.
type ReleaseFreeMemory = unsafe extern "C" fn();
/// `mi_collect` of mimalloc. With `true` it does all that it can.
type Collect = unsafe extern "C" fn(bool);
/// `mi_version` of mimalloc: 223 is 2.2.3, and 30302 is 3.3.2.
type MimallocVersion = unsafe extern "C" fn() -> c_int;
/// `mi_option_get` of mimalloc: the number of an option.
type GetOption = unsafe extern "C" fn(c_int) -> c_long;
/// `mi_option_set` of mimalloc: the number of an option, and its value.
type SetOption = unsafe extern "C" fn(c_int, c_long);

/// From this version on, the option of mimalloc has the number below.
const OLDEST_MIMALLOC: c_int = 200;
/// `mi_option_purge_delay`: for how many milliseconds freed memory is kept.
const PURGE_DELAY_OPTION: c_int = 15;

/// The options of mimalloc.
struct Mimalloc {
    get_option: GetOption,
    set_option: SetOption,
}

/// `None` if the process does not have it, or if the operator has set how long it keeps freed memory.
static MIMALLOC: LazyLock<Option<Mimalloc>> = LazyLock::new(|| {
    if ["MIMALLOC_PURGE_DELAY", "MIMALLOC_RESET_DELAY"].iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    // SAFETY: the types are those of these functions. The first may be called by any thread at any time.
    unsafe {
        let version = function::<MimallocVersion>(c"mi_version")?();
        let get_option = function::<GetOption>(c"mi_option_get")?;
        let set_option = function::<SetOption>(c"mi_option_set")?;
        (version >= OLDEST_MIMALLOC).then_some(Mimalloc { get_option, set_option })
    }
});

/// Empties the thread's own cache, then returns the unused pages of all arenas (4096 stands for all of them).
const JEMALLOC_ACTIONS: [&CStr; 2] = [c"thread.tcache.flush", c"arena.4096.purge"];

/// Frees the buffers of native backends that no run uses, and returns the memory that the process has freed, and that its
/// allocators keep, to the system.
///
/// Takes time in proportion to the freed memory. Other threads may wait for the allocator meanwhile.
fn return_freed_memory() {
    native_backend::free_idle_buffers();
    // SAFETY: the types are those of these functions in their allocators. All may be called by any thread at any time.
    unsafe {
        if let Some(mallctl) = function::<Mallctl>(c"mallctl") {
            for action in JEMALLOC_ACTIONS {
                mallctl(action.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0);
            }
        }
        if let Some(release) = function::<ReleaseFreeMemory>(c"MallocExtension_ReleaseFreeMemory") {
            release();
        }
        if let Some(collect) = function::<Collect>(c"mi_collect") {
            collect(true);
        }
    }
    // Also with another allocator: the loader and libraries that were linked otherwise may use this one.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The same, also what threads keep: each of them finds out before it rests.
fn return_all_memory() {
    RETURNS.fetch_add(1, Ordering::Relaxed);
    return_freed_memory();
}

/// How often threads were to return what they keep.
static RETURNS: AtomicU64 = AtomicU64::new(0);

/// Whether this thread is to return what it keeps of what it has freed. It asks before it rests.
pub fn thread_returns_memory() -> bool {
    thread_local! {
        static SEEN: Cell<u64> = const { Cell::new(0) };
    }
    let returns = RETURNS.load(Ordering::Relaxed);
    SEEN.replace(returns) != returns
}

/// Returns what this thread has freed, and what mimalloc keeps for it, to the system. Without mimalloc it does nothing.
pub fn return_memory_of_thread() {
    static COLLECT: LazyLock<Option<Collect>> =
        // SAFETY: the type is that of this function.
        LazyLock::new(|| unsafe { function::<Collect>(c"mi_collect") });
    if let Some(collect) = *COLLECT {
        // SAFETY: may be called by any thread at any time.
        unsafe { collect(true) };
    }
}

/// The function of that name in the program, in a preloaded library, or in one that the program is linked with.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
    // SAFETY: the name ends with NUL; only an address is looked up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: as the caller promises; a function pointer that is not null.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_told_of_a_return() {
        thread_returns_memory();
        return_all_memory();
        assert!(thread_returns_memory());
        std::thread::spawn(|| assert!(thread_returns_memory())).join().unwrap();
    }

    #[test]
    fn functions_are_found_by_their_names() {
        // SAFETY: never called.
        let found = |name| unsafe { function::<ReleaseFreeMemory>(name) }.is_some();
        assert!(found(c"malloc") && !found(c"no_such_function"));
    }

    /// The last block keeps the heap from shrinking by itself.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn freed_memory_goes_back_to_the_system() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
        };
        let mut blocks: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 * 1024]).collect();
        let last = blocks.pop();
        drop(blocks);
        let freed = resident();
        return_freed_memory();
        let returned = resident();
        assert!(returned + 40 < freed, "{freed} MiB before, {returned} MiB after");
        drop(last);
    }
}
