//! How much memory the connections of a thread have freed.
//!
//! Allocators keep what a thread frees until the thread allocates again. A thread of the network may have nothing to do for
//! hours after thousands of connections have become idle.
use std::cell::Cell;

/// Less than this is not worth the work.
const MUCH: usize = 2 << 20;

thread_local! {
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// A connection has freed so many bytes on this thread.
pub(crate) fn connection_has_freed(bytes: usize) {
    FREED.set(FREED.get().saturating_add(bytes));
}

/// Whether connections have freed much on this thread since this was last true. A thread asks before it has nothing to do, and
/// then tells its allocator.
pub fn connections_have_freed_much() -> bool {
    let much = FREED.get() >= MUCH;
    if much {
        FREED.set(0);
    }
    much
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_free_is_told_once() {
        connection_has_freed(MUCH - 1);
        assert!(!connections_have_freed_much());
        connection_has_freed(1);
        assert!(connections_have_freed_much());
        assert!(!connections_have_freed_much());
    }
}
