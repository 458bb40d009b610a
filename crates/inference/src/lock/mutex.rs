//! A lock, and a condition variable, that know the order of locks.
use std::{
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

use parking_lot::WaitTimeoutResult;

#[cfg(all(debug_assertions, not(feature = "loom")))]
use super::held::{HeldLock, LockId};
use super::rank::LockRank;
#[cfg(any(not(debug_assertions), feature = "loom"))]
use super::unchecked::{UncheckedLock as HeldLock, UncheckedLockId as LockId};

/// A lock that knows its place in the order of locks.
#[derive(Debug)]
pub struct Mutex<T> {
    id: LockId,
    content: parking_lot::Mutex<T>,
}

/// Unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // Dropped in this order: the lock is free before the thread forgets it.
    content: parking_lot::MutexGuard<'a, T>,
    held: HeldLock,
}

impl<T> Mutex<T> {
    /// An unlocked leaf.
    pub const fn new(content: T) -> Self {
        Self::ranked(LockRank::Leaf, content)
    }

    /// An unlocked lock of that rank.
    pub const fn ranked(rank: LockRank, content: T) -> Self {
        Self { id: LockId::new::<T>(rank), content: parking_lot::Mutex::new(content) }
    }

    /// Blocks until the lock is free.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock that does not stand above this one in the order of locks.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = HeldLock::enter(&self.id);
        MutexGuard { content: self.content.lock(), held }
    }

    /// Takes the lock if it is free. The thread may hold any lock, because it does not wait.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let content = self.content.try_lock()?;
        Some(MutexGuard { content, held: HeldLock::add(&self.id) })
    }

    /// The content of a lock that no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.content.get_mut()
    }

    /// The content of a lock that has no more users.
    pub fn into_inner(self) -> T {
        self.content.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> MutexGuard<'_, T> {
    /// Releases the lock while `during` runs.
    #[track_caller]
    pub fn unlocked<R>(guard: &mut Self, during: impl FnOnce() -> R) -> R {
        let MutexGuard { content, held } = guard;
        let _again = held.leave();
        parking_lot::MutexGuard::unlocked(content, during)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.content
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.content
    }
}

/// Lets threads that hold a [`Mutex`] wait for a signal. A thread that waits holds no other lock.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiting threads.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Waits for a signal.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held.wait();
        self.0.wait(&mut guard.content);
    }

    /// Waits as long as `condition` holds.
    #[track_caller]
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Waits as long as `condition` holds, at most until `deadline`.
    #[track_caller]
    pub fn wait_while_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        guard.held.wait();
        self.0.wait_while_until(&mut guard.content, condition, deadline)
    }

    /// Waits for a signal, at most for `limit`.
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        guard.held.wait();
        self.0.wait_for(&mut guard.content, limit)
    }

    /// Waits for a signal, at most until `deadline`.
    #[track_caller]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitTimeoutResult {
        guard.held.wait();
        self.0.wait_until(&mut guard.content, deadline)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Mutex<u64>>() == size_of::<parking_lot::Mutex<u64>>());

#[cfg(all(test, debug_assertions, not(feature = "loom")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use vocabulary::panic_message;

    use super::*;

    /// What the panic says that this leads to, if it does.
    fn panic_of(run: impl FnOnce()) -> Option<String> {
        catch_unwind(AssertUnwindSafe(run)).err().map(|panic| panic_message(&*panic).to_owned())
    }

    #[test]
    fn locks_are_taken_in_the_order_of_the_table() {
        let (dialog, driver) =
            (Mutex::ranked(LockRank::WorkerInbox, 1_u8), Mutex::ranked(LockRank::Driver, 2_u16));
        let leaf = Mutex::new(3_u32);
        let _dialog = dialog.lock();
        let first = driver.lock();
        drop(leaf.lock());
        drop(first);
        drop(driver.lock());
    }

    #[test]
    fn a_lock_that_is_taken_out_of_order_is_refused_and_both_are_named() {
        let (driver, leaf) = (Mutex::ranked(LockRank::Driver, 2_u16), Mutex::new(3_u32));
        let problem = panic_of(|| {
            let _leaf = leaf.lock();
            drop(driver.lock());
        });
        let problem = problem.expect("the driver stands above leaves");
        assert!(problem.contains("takes the Driver lock of u16 ("), "{problem}");
        assert!(problem.contains("holds the Leaf lock of u32 ("), "{problem}");
        // The thread holds neither any more.
        drop(driver.lock());
        drop(leaf.lock());
    }

    #[test]
    fn two_leaves_are_never_held_together() {
        let (one, other) = (Mutex::new(1_u8), Mutex::new(2_u16));
        let _one = one.lock();
        assert!(panic_of(|| drop(other.lock())).is_some());
    }

    #[test]
    fn a_lock_that_is_only_tried_has_no_order_but_those_after_it_have_one() {
        let (one, other) =
            (Mutex::ranked(LockRank::WorkerInbox, 1_u8), Mutex::ranked(LockRank::WorkerInbox, 2_u8));
        let leaf = Mutex::new(3_u32);
        let _one = one.lock();
        let tried = other.try_lock().expect("it is free");
        drop(leaf.lock());
        drop(tried);
        let _leaf = leaf.lock();
        let _tried = other.try_lock().expect("it is free");
        assert!(panic_of(|| drop(Mutex::new(()).lock())).is_some());
    }

    #[test]
    fn a_lock_is_not_held_while_it_is_unlocked() {
        let (one, other) = (Mutex::new(1_u8), Mutex::new(2_u16));
        let mut held = one.lock();
        MutexGuard::unlocked(&mut held, || drop(other.lock()));
        assert!(panic_of(|| drop(other.lock())).is_some(), "it is held again");
    }

    #[test]
    fn a_thread_that_waits_for_a_signal_holds_no_other_lock() {
        let (driver, leaf, signal) =
            (Mutex::ranked(LockRank::Driver, 2_u16), Mutex::new(3_u32), Condvar::new());
        let _driver = driver.lock();
        let problem = panic_of(|| _ = signal.wait_for(&mut leaf.lock(), Duration::ZERO));
        assert!(problem.expect("the driver is held").contains("waits for a signal"));
    }
}
