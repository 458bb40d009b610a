//! The locks of the workspace, and the one table of the order in which a thread may take them.
//!
//! Most locks are leaves: a thread that holds one takes no other lock. Those that nest have a [`LockRank`], and a thread
//! takes them in the order of their ranks. So no two threads can wait for each other. With debug assertions, each thread
//! knows which locks it holds, and a lock that is taken out of order ends the thread with a panic that names both.
//! Without debug assertions, a lock is exactly that of `parking_lot`.
//!
//! Two kinds of locks are not checked: `RwLock`s, which are leaves, and those of tokio, which are held across `.await`.
use std::{
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

pub use parking_lot::WaitTimeoutResult;

#[cfg(debug_assertions)]
mod held;
#[cfg(not(debug_assertions))]
mod unchecked;

#[cfg(debug_assertions)]
use held::{HeldLock, LockId};
#[cfg(not(debug_assertions))]
use unchecked::{HeldLock, LockId};

/// The order of locks, and the reason for each lock that is held while another one is taken. A thread that holds a lock
/// takes only locks that stand below it in this table. This is the only place where the order is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockRank {
    /// What a worker of a model in Python sends. The thread that reads it holds the lock while it acts on it, so that two
    /// threads cannot change the order. It answers requests meanwhile, and an answer may take any lock of the engine. A
    /// thread that may hold such a lock already only tries to take another one.
    WorkerDialog,
    /// The directories that are watched. The lock is held while the system changes its watches, so that two changes cannot
    /// mix. The thread of the notifications reads the table of the directories meanwhile, which is a leaf.
    FileWatches,
    /// The library of ONNX Runtime. The lock is held while the library is looked for and opened, so that it is opened once.
    /// Servers of one process make their environments one after the other, which another lock ensures.
    RuntimeSearch,
    /// The scheduling of a model version. Its steps give the requests of a batch their places in the order of responses, in
    /// the order in which they leave the queue, and claim shared resources of the rate limiter for what they start. Both
    /// are leaves.
    Driver,
    /// A lock that is held for arithmetic. A thread that holds it takes no other lock.
    Leaf,
}

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
