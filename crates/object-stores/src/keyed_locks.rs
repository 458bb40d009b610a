//! A lock for each key, which exists as long as somebody holds it or waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use inference::lock::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Lets one task at a time work on the same thing.
#[derive(Default)]
pub(crate) struct KeyedLocks(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl KeyedLocks {
    /// Waits until no other task holds the key.
    pub(crate) async fn lock(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = self.find(key);
        lock.lock_owned().await
    }

    fn find(&self, key: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_task_at_a_time_holds_a_key_and_free_keys_are_forgotten() {
        let locks = KeyedLocks::default();
        let guard = locks.lock("a").await;
        let _other = locks.lock("b").await;
        assert!(locks.lock("a").now_or_never().is_none());
        drop(guard);
        assert!(locks.lock("a").now_or_never().is_some());
        let _third = locks.lock("c").await;
        assert_eq!(locks.0.lock().len(), 2);
    }
}
