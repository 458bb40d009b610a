//! What is left of a backend that has panicked.
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use vocabulary::Error;

/// The reason why an executor cannot be used any more, if there is one. Executors with such a reason are counted, so that
/// nobody looks at all of them to find none.
#[derive(Debug)]
pub(crate) struct BackendFault {
    reason: OnceLock<Error>,
    /// The executors of the server that have a reason.
    count: Arc<AtomicUsize>,
}

impl BackendFault {
    pub(crate) fn counted_in(count: Arc<AtomicUsize>) -> Self {
        Self { reason: OnceLock::new(), count }
    }

    pub(crate) fn get(&self) -> Option<&Error> {
        self.reason.get()
    }

    /// The first reason counts.
    pub(crate) fn set(&self, reason: Error) {
        if self.reason.set(reason).is_ok() {
            self.count.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for BackendFault {
    fn drop(&mut self) {
        if self.reason.get().is_some() {
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_counts_once_until_it_is_dropped() {
        let count = Arc::new(AtomicUsize::new(0));
        let (well, broken) = [(); 2].map(|()| BackendFault::counted_in(count.clone())).into();
        broken.set(Error::internal("first"));
        broken.set(Error::internal("second"));
        assert_eq!(broken.get().unwrap().message, "first");
        assert!(well.get().is_none());
        assert_eq!(count.load(Ordering::Acquire), 1);
        drop((well, broken));
        assert_eq!(count.load(Ordering::Acquire), 0);
    }
}
