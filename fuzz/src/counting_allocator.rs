//! The system's allocator, which counts what each thread allocates.
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// What a thread has allocated while it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// The most bytes that were allocated at the same time, beyond those at the begin.
    pub(crate) peak: usize,
    /// How often memory was allocated, or moved to a larger place.
    pub(crate) count: usize,
    /// The bytes of all allocations together, whether they were freed or not.
    pub(crate) total: usize,
}

/// The counts of a thread. Bytes may be freed by another thread than that which allocated them, so they have a sign.
#[derive(Clone, Copy)]
struct ThreadCounts {
    bytes: isize,
    peak: isize,
    count: usize,
    total: usize,
}

thread_local! {
    // It needs no destructor, so it can be used as long as the thread allocates.
    static COUNTS: Cell<ThreadCounts> = const { Cell::new(ThreadCounts { bytes: 0, peak: 0, count: 0, total: 0 }) };
}

/// What `work` allocates on this thread, and its result.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (Allocated, T) {
    let before = COUNTS.get();
    COUNTS.set(ThreadCounts { peak: before.bytes, ..before });
    let result = work();
    let after = COUNTS.get();
    let allocated = Allocated {
        peak: (after.peak - before.bytes).unsigned_abs(),
        count: after.count - before.count,
        total: after.total - before.total,
    };
    (allocated, result)
}

/// Notes that memory was asked for, or freed: so many bytes more or less.
fn note(grown: isize) {
    let mut counts = COUNTS.get();
    counts.bytes = counts.bytes.saturating_add(grown);
    if grown > 0 {
        counts.peak = counts.peak.max(counts.bytes);
        counts.count = counts.count.saturating_add(1);
        counts.total = counts.total.saturating_add(grown.unsigned_abs());
    }
    COUNTS.set(counts);
}

/// Notes that memory was asked for. What the system refuses counts for the peak, and is not there afterwards.
fn asked(grown: isize, given: *mut u8) -> *mut u8 {
    note(grown);
    if given.is_null() {
        note(-grown);
    }
    given
}

/// The bytes of a layout. No layout is larger than `isize::MAX`.
fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

/// The system's allocator, with counts.
struct CountingAllocator;

/// Counts for all programs of this package.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: each function passes its arguments on to the system's allocator, whose promises are those of this trait, and
// returns its result. Counting does not allocate, and does not unwind: the cell has no destructor, and the sums
// saturate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised to this function.
        asked(signed(layout.size()), unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised to this function.
        asked(signed(layout.size()), unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(-signed(layout.size()));
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as promised to this function.
        let given = unsafe { System.realloc(place, layout, size) };
        asked(signed(size) - signed(layout.size()), given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_what_lives_at_the_same_time() {
        let (allocated, ()) = measure(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0_u8; 1000]));
            }
            drop(std::hint::black_box((vec![0_u8; 500], Vec::<u8>::with_capacity(700))));
        });
        assert_eq!(allocated, Allocated { peak: 1200, count: 12, total: 11_200 });
    }

    #[test]
    fn growth_counts_by_what_it_adds_and_a_failure_counts_too() {
        let (allocated, length) = measure(|| {
            let mut bytes = std::hint::black_box(Vec::<u8>::with_capacity(10));
            bytes.reserve_exact(100);
            assert!(Vec::<u8>::new().try_reserve_exact(usize::MAX / 2 - 8).is_err());
            bytes.capacity()
        });
        assert_eq!(length, 100);
        assert!(allocated.peak > usize::MAX / 4, "{allocated:?}");
    }
}
