//! The locks and atomics that threads share, in one module, so that a model checker can replace them.
//!
//! With the feature `loom`, the types are those of the model checker, which tries every order of thread steps. Only
//! the model checker's tests use this feature; `cargo xtask deepcheck` runs them. Outside a checked model these types
//! panic.
#[cfg(not(feature = "loom"))]
mod chosen {
    pub use std::sync::atomic;

    pub use crate::lock::{Condvar, Mutex, MutexGuard};
}

#[cfg(feature = "loom")]
mod chosen {
    use std::ops::{Deref, DerefMut};

    pub use LoomCondvar as Condvar;
    pub use LoomMutex as Mutex;
    pub use LoomMutexGuard as MutexGuard;
    pub use loom::sync::atomic;

    /// The model checker's lock, with the interface of [`crate::lock`].
    #[derive(Debug)]
    pub struct LoomMutex<T>(loom::sync::Mutex<T>);

    /// Unlocks when dropped.
    #[derive(Debug)]
    pub struct LoomMutexGuard<'a, T> {
        lock: &'a LoomMutex<T>,
        /// Absent only while the guard waits or is unlocked.
        held: Option<loom::sync::MutexGuard<'a, T>>,
    }

    /// The model checker's condition variable, with the interface of [`crate::lock`].
    #[derive(Debug)]
    pub struct LoomCondvar(loom::sync::Condvar);

    const UNPOISONED: &str = "a panic ends the model";
    const HELD: &str = "the lock is held except while its thread waits";

    impl<T> LoomMutex<T> {
        /// An unlocked lock.
        pub fn new(content: T) -> Self {
            Self(loom::sync::Mutex::new(content))
        }

        /// Blocks until the lock is free.
        pub fn lock(&self) -> LoomMutexGuard<'_, T> {
            LoomMutexGuard { lock: self, held: Some(self.0.lock().expect(UNPOISONED)) }
        }
    }

    impl<T: Default> Default for LoomMutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> LoomMutexGuard<'_, T> {
        /// Releases the lock while `during` runs.
        pub fn unlocked<R>(guard: &mut Self, during: impl FnOnce() -> R) -> R {
            guard.held = None;
            let result = during();
            guard.held = Some(guard.lock.0.lock().expect(UNPOISONED));
            result
        }
    }

    impl<T> Deref for LoomMutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.held.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for LoomMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect(HELD)
        }
    }

    impl LoomCondvar {
        /// A condition variable without waiting threads.
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Waits for a signal.
        pub fn wait<T>(&self, guard: &mut LoomMutexGuard<'_, T>) {
            let held = guard.held.take().expect(HELD);
            guard.held = Some(self.0.wait(held).expect(UNPOISONED));
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

    impl Default for LoomCondvar {
        fn default() -> Self {
            Self::new()
        }
    }
}

pub use chosen::*;
