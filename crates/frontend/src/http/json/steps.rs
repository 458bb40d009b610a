//! Counts the steps of a decoder, so that a test can compare their number with the length of the text.
//!
//! A step is one read of a byte, a token, or one visit to a node of the tree. Only tests count steps.
#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Adds to the number of steps.
#[inline]
pub(super) fn add(count: usize) {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + count));
    #[cfg(not(test))]
    let _ = count;
}

/// The number of steps that `work` takes on this thread.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = STEPS.get();
    let result = work();
    (STEPS.get() - before, result)
}
