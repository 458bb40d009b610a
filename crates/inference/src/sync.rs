//! The locks and atomics of what threads hand to each other, in one place, so that a model checker can take theirs.
//!
//! With the feature `loom` they are the checker's own: every order in which threads may go on is tried. Only its tests, which
//! `cargo xtask deepcheck` runs, switch that on; outside of a checked model these types then panic.
#[cfg(not(feature = "loom"))]
mod chosen {
    pub use std::sync::atomic;

    pub use parking_lot::{Condvar, Mutex, MutexGuard};
}

#[cfg(feature = "loom")]
mod chosen {
    use std::ops::{Deref, DerefMut};

    pub use loom::sync::atomic;

    /// The checker's lock, with the interface of `parking_lot`.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// Unlocks when dropped.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T> {
        lock: &'a Mutex<T>,
        /// Absent only while it waits.
        held: Option<loom::sync::MutexGuard<'a, T>>,
    }

    /// The checker's condition variable, with the interface of `parking_lot`.
    #[derive(Debug)]
    pub struct Condvar(loom::sync::Condvar);

    const UNPOISONED: &str = "a panic ends the model";
    const HELD: &str = "the lock is held except while its thread waits";

    impl<T> Mutex<T> {
        /// An open lock.
        pub fn new(content: T) -> Self {
            Self(loom::sync::Mutex::new(content))
        }

        /// Blocks until the lock is free.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { lock: self, held: Some(self.0.lock().expect(UNPOISONED)) }
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> MutexGuard<'_, T> {
        /// Opens the lock for as long as `during` runs.
        pub fn unlocked<R>(guard: &mut Self, during: impl FnOnce() -> R) -> R {
            guard.held = None;
            let result = during();
            guard.held = Some(guard.lock.0.lock().expect(UNPOISONED));
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.held.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect(HELD)
        }
    }

    impl Condvar {
        /// Nobody waits.
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Waits for a signal.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect(HELD);
            guard.held = Some(self.0.wait(held).expect(UNPOISONED));
        }

        /// Lets one of those who wait go on.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Lets all who wait go on.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    impl Default for Condvar {
        fn default() -> Self {
            Self::new()
        }
    }
}

pub use chosen::*;
