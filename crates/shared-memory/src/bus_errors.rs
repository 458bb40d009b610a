//! Survives accesses to mapped memory that does not exist any more.
//!
//! A client may make its object smaller while a thread of the server reads it, or may never have had memory for all of
//! it. The system then sends SIGBUS to that thread, which ends a process that is not prepared. Checking the length before
//! an access is not enough, because the length may change between the check and the access.
//!
//! Mappings are therefore [watched](WatchedRange). If an access within a watched range fails, the handler of SIGBUS puts
//! zeros in the place of the whole range and notes the fault. The access goes on with the zeros. The code that made it
//! looks for the fault afterwards, and throws the result away. Any other SIGBUS goes to the handler that was there
//! before. Wayland compositors protect themselves from their clients in the same way.
//!
//! The handler belongs to the process. Only the server installs it, when a client registers its first region: programs
//! that embed the server have no regions of clients.
use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicUsize,
        Ordering::{Acquire, Release, SeqCst},
    },
};

use inference::lock::Mutex;

/// The most ranges that can be watched at the same time.
pub(crate) const MOST_RANGES: usize = 16 << 10;

/// A place for a watched range. The handler reads it, so it has no lock.
///
/// The handler must not take the start of one range and the size of another one for a range: it would replace memory
/// that belongs to others. So each change raises the generation before and after it, and the handler uses only what it
/// has read within one generation.
struct RangeSlot {
    /// How often the slot has begun or ended a change. Odd: it is being changed.
    generation: AtomicUsize,
    /// The address of the first byte. 0: the slot is free.
    start: AtomicUsize,
    byte_size: AtomicUsize,
    has_faulted: AtomicBool,
}

impl RangeSlot {
    const fn free() -> Self {
        Self {
            generation: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            byte_size: AtomicUsize::new(0),
            has_faulted: AtomicBool::new(false),
        }
    }

    /// Stores a range without a fault. Only the owner of the slot calls this.
    fn set(&self, start: usize, byte_size: usize) {
        self.generation.fetch_add(1, SeqCst);
        self.start.store(start, SeqCst);
        self.byte_size.store(byte_size, SeqCst);
        self.has_faulted.store(false, SeqCst);
        self.generation.fetch_add(1, SeqCst);
    }

    /// The start and the size of the range, if it contains the address. `after_load` is called after each load: tests
    /// change the slot there.
    ///
    /// Whoever accesses a watched range keeps its slot from changing. So a slot that changes meanwhile belongs to
    /// another range, and so does one that has changed: two ranges that exist at the same time do not overlap.
    fn range_at(&self, address: usize, after_load: impl Fn()) -> Option<(usize, usize)> {
        let load = |value: &AtomicUsize| {
            let value = value.load(SeqCst);
            after_load();
            value
        };
        let generation = load(&self.generation);
        let (start, byte_size) = (load(&self.start), load(&self.byte_size));
        let is_whole = generation.is_multiple_of(2) && load(&self.generation) == generation;
        (is_whole && start != 0 && address.wrapping_sub(start) < byte_size).then_some((start, byte_size))
    }
}

static SLOTS: [RangeSlot; MOST_RANGES] = [const { RangeSlot::free() }; MOST_RANGES];

/// How many slots were ever used. The handler looks at no others.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Indices of slots below [`USED_SLOTS`] that are free again.
static FREE_SLOTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// What the process did about SIGBUS before. Never freed, because the handler may read it at any time.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Held while the handler is installed.
static INSTALLING: Mutex<()> = Mutex::new(());

/// A range of mapped memory whose faults are survived. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct WatchedRange {
    slot: usize,
}

impl WatchedRange {
    /// Watches a range. `None` if too many are watched already.
    ///
    /// # Safety
    /// The range is a mapping that belongs to the caller alone, until the returned value is dropped. The handler may
    /// replace the mapping by other memory at any time.
    pub(crate) unsafe fn new(start: *mut u8, byte_size: usize) -> Option<Self> {
        let mut free = FREE_SLOTS.lock();
        let index = match free.pop() {
            Some(index) => index,
            None => {
                let index = USED_SLOTS.load(Acquire);
                if index == MOST_RANGES {
                    return None;
                }
                index
            }
        };
        SLOTS[index].set(start.addr(), byte_size);
        if index == USED_SLOTS.load(Acquire) {
            USED_SLOTS.store(index + 1, Release);
        }
        Some(Self { slot: index })
    }

    /// Whether an access has failed, so that the range contains zeros instead of the client's bytes.
    pub(crate) fn has_faulted(&self) -> bool {
        SLOTS[self.slot].has_faulted.load(SeqCst)
    }
}

impl Drop for WatchedRange {
    fn drop(&mut self) {
        SLOTS[self.slot].set(0, 0);
        FREE_SLOTS.lock().push(self.slot);
    }
}

/// Installs the handler, unless it is installed. A plug-in may have replaced it, so this is called before each access.
pub(crate) fn ensure_handled() {
    if is_ours(&current_action()) {
        return;
    }
    let _alone = INSTALLING.lock();
    let previous = current_action();
    if is_ours(&previous) {
        return;
    }
    PREVIOUS.store(Box::into_raw(Box::new(previous)), SeqCst);
    // SAFETY: a structure of integers, for which zeros are a value.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that the flags promise, and only does what a handler may do.
    let failed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0;
    debug_assert!(!failed, "SIGBUS can be handled");
}

fn current_action() -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: asks for the current action, and zeros are one, too.
    unsafe {
        libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_bus_error as *const () as usize
}

/// The handler. It runs on the thread whose access has failed.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid structure. The fields of the address are set for SIGBUS.
    let address = unsafe { (*info).si_addr() }.addr();
    if !replaces_memory_at(address) {
        // SAFETY: the arguments are those of the system.
        unsafe { pass_on(signal, info, context) };
    }
}

/// Puts zeros in the place of the watched range with this address. False if there is none.
fn replaces_memory_at(address: usize) -> bool {
    for slot in SLOTS.iter().take(USED_SLOTS.load(Acquire)) {
        let Some((start, byte_size)) = slot.range_at(address, || {}) else { continue };
        slot.has_faulted.store(true, SeqCst);
        // SAFETY: the range is a mapping that its owner has given to this module. Somebody accesses it now, so it is
        // still mapped. The call changes nothing else, and `errno` is restored.
        unsafe {
            let errno = *libc::__errno_location();
            let replaced = libc::mmap(
                ptr::with_exposed_provenance_mut(start),
                byte_size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            return replaced != libc::MAP_FAILED;
        }
    }
    false
}

/// Does what the process did about SIGBUS before.
///
/// # Safety
/// The arguments are those of the system.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the pointer is null or was made by `ensure_handled` and is never freed. A handler has the signature that
    // the flags promise.
    unsafe {
        let previous = PREVIOUS.load(SeqCst).as_ref();
        match previous.map(|action| (action.sa_sigaction, action.sa_flags)) {
            Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
                let handler: *const () = ptr::with_exposed_provenance(handler);
                if flags & libc::SA_SIGINFO != 0 {
                    type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                    std::mem::transmute::<*const (), Informed>(handler)(signal, info, context);
                } else {
                    std::mem::transmute::<*const (), extern "C" fn(c_int)>(handler)(signal);
                }
            }
            // The access is repeated when this returns, and then ends the process as it would have before.
            Some(_) | None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What the handler reads at an address if the slot gets these ranges after the load with that number.
    fn read(address: usize, changed_after: usize, ranges: &[(usize, usize)]) -> Option<(usize, usize)> {
        let slot = RangeSlot::free();
        slot.set(0x1000, 0x1000);
        let loads = Cell::new(0);
        slot.range_at(address, || {
            if loads.replace(loads.get() + 1) == changed_after {
                ranges.iter().for_each(|&(start, byte_size)| slot.set(start, byte_size));
            }
        })
    }

    #[test]
    fn the_start_of_one_range_and_the_size_of_another_are_never_a_range() {
        // Neither range contains the address; the start of the first with the size of the second would.
        for changed_after in 0..4 {
            for ranges in
                [&[(0x10_0000, 0x8000)][..], &[(0, 0), (0x10_0000, 0x8000)], &[(0x1000, 0x8000)], &[(0, 0)]]
            {
                assert_eq!(read(0x3000, changed_after, ranges), None, "after load {changed_after}");
            }
        }
        // Nor the start of the second with the size of the first.
        for changed_after in 0..4 {
            assert_eq!(
                read(0x10_0800, changed_after, &[(0x10_0000, 0x100)]),
                None,
                "after load {changed_after}"
            );
        }
    }

    #[test]
    fn a_slot_that_is_being_changed_is_no_range() {
        let slot = RangeSlot::free();
        slot.set(0x1000, 0x1000);
        assert_eq!(slot.range_at(0x1fff, || {}), Some((0x1000, 0x1000)));
        assert_eq!(slot.range_at(0x2000, || {}), None);
        slot.generation.fetch_add(1, SeqCst);
        assert_eq!(slot.range_at(0x1fff, || {}), None);
    }
}
