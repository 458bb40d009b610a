//! Counts the elements that queues look at, so that tests can bound the work without a clock.

/// Counts one element that a queue has looked at. Does nothing outside tests.
#[inline]
pub(crate) fn count() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many elements this thread has looked at while `work` ran.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
