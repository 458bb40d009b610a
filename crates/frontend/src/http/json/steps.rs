//! Counts the steps of a decoder, so that a test can compare their number with the length of the text.
//!
//! A step is one read of a byte, a token, or one visit to a node of the tree. Only tests and fuzzers count steps.
#[cfg(any(test, feature = "fuzzing"))]
use std::cell::Cell;

#[cfg(any(test, feature = "fuzzing"))]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Adds to the number of steps.
#[inline]
pub(super) fn add(count: usize) {
    #[cfg(any(test, feature = "fuzzing"))]
    STEPS.with(|steps| steps.set(steps.get() + count));
    #[cfg(not(any(test, feature = "fuzzing")))]
    let _ = count;
}

/// The number of steps that `work` takes on this thread.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = STEPS.get();
    let result = work();
    (STEPS.get() - before, result)
}
