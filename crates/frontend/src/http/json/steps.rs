//! Counts the steps of a decoder, so that a test can compare their number with the length of the text.
//!
//! A step is a byte that is looked at, a token, or a node of the tree that is visited. Outside of tests nothing is
//! counted.
#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts some steps.
#[inline]
pub(super) fn add(count: usize) {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + count));
    #[cfg(not(test))]
    let _ = count;
}

/// The steps that `work` takes on this thread.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = STEPS.get();
    let result = work();
    (STEPS.get() - before, result)
}
