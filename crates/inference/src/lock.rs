//! The locks of the workspace, and the one table of the order in which a thread may take them.
//!
//! Most locks are leaves: a thread that holds one takes no other lock. Those that nest have a [`LockRank`], and a thread
//! takes them in the order of their ranks. So no two threads can wait for each other. With debug assertions, each thread
//! knows which locks it holds, and a lock that is taken out of order ends the thread with a panic that names both.
//! Without debug assertions, a lock is exactly that of `parking_lot`.
//!
//! Two kinds of locks are not checked: `RwLock`s, and those of tokio, which are held across `.await`. `RwLock`s are leaves,
//! but for one in `backend-onnx`, which is held while a library makes a session.
#[cfg(all(debug_assertions, not(feature = "loom")))]
mod held;
mod mutex;
mod rank;
#[cfg(any(not(debug_assertions), feature = "loom"))]
mod unchecked;

pub use mutex::{Condvar, Mutex, MutexGuard};
pub use parking_lot::WaitTimeoutResult;
pub use rank::LockRank;
