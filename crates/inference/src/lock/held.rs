//! The locks that each thread holds, for the check of their order.
use std::{any::type_name, cell::RefCell, fmt, panic::Location, thread};

use super::rank::LockRank;

/// What a lock is, in the order of locks and in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockId {
    rank: LockRank,
    content: fn() -> &'static str,
}

/// A lock that the thread holds.
#[derive(Debug, Clone, Copy)]
struct HeldEntry {
    id: LockId,
    taken_at: &'static Location<'static>,
    number: u64,
}

#[derive(Debug, Default)]
struct HeldLocks {
    entries: Vec<HeldEntry>,
    next: u64,
}

thread_local! {
    static HELD: RefCell<HeldLocks> = RefCell::default();
}

/// Stands for a lock in the list of its thread, until it is dropped.
#[derive(Debug)]
pub(super) struct HeldLock(HeldEntry);

/// Adds a lock to the list again when dropped.
pub(super) struct Reentry<'a>(&'a HeldLock);

impl LockId {
    pub(super) const fn new<T>(rank: LockRank) -> Self {
        Self { rank, content: type_name::<T> }
    }
}

impl fmt::Display for HeldEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockId { rank, content } = self.id;
        write!(f, "the {rank:?} lock of {} ({})", content(), self.taken_at)
    }
}

impl HeldLock {
    /// The thread is about to take the lock, and may wait for it.
    #[track_caller]
    pub(super) fn enter(id: &LockId) -> Self {
        let held = Self::add(id);
        let number = held.0.number;
        let find = |held: &HeldLocks| {
            held.entries.iter().copied().find(|held| held.number != number && held.id.rank >= id.rank)
        };
        if let Ok(Some(other)) = HELD.try_with(|held| find(&held.borrow())) {
            refuse(&format!("a thread takes {} while it holds {other}", held.0));
        }
        held
    }

    /// The thread has taken the lock without waiting for it.
    #[track_caller]
    pub(super) fn add(id: &LockId) -> Self {
        let mut entry = HeldEntry { id: *id, taken_at: Location::caller(), number: 0 };
        // The list is gone while the thread ends.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            held.next += 1;
            entry.number = held.next;
            held.entries.push(entry);
        });
        Self(entry)
    }

    /// The thread is about to wait for a signal, with this lock.
    pub(super) fn wait(&self) {
        let other =
            HELD.with_borrow(|held| held.entries.iter().copied().find(|entry| entry.number != self.0.number));
        if let Some(other) = other {
            refuse(&format!("a thread waits for a signal with {} while it holds {other}", self.0));
        }
    }

    /// The lock is free until the result is dropped.
    pub(super) fn leave(&self) -> Reentry<'_> {
        forget(self.0.number);
        Reentry(self)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        forget(self.0.number);
    }
}

impl Drop for Reentry<'_> {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| held.borrow_mut().entries.push(self.0.0));
    }
}

fn forget(number: u64) {
    let _ = HELD.try_with(|held| held.borrow_mut().entries.retain(|entry| entry.number != number));
}

/// A second panic would end the process, and say less than the first one.
fn refuse(problem: &str) {
    assert!(thread::panicking(), "{problem}: against the order of locks (inference::lock::LockRank)");
}
