//! How work that waits for stores is ended.
use tokio::sync::watch;
use vocabulary::Error;

/// Ends work that waits for stores: for one model, or for all.
#[derive(Clone)]
pub struct StoreWait(watch::Receiver<Option<Error>>);

/// The other end of [`StoreWait`]. Dropping it ends nothing.
pub struct StoreWaitEnd(watch::Sender<Option<Error>>);

impl Default for StoreWaitEnd {
    /// The end of no work yet.
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl StoreWaitEnd {
    /// What waits, and what waits later, fails with this error.
    pub fn end(&self, error: Error) {
        self.0.send_replace(Some(error));
    }

    /// Whether it has ended the work.
    pub fn has_ended(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether anything may wait.
    pub fn is_used(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// What the work waits with.
    pub fn wait(&self) -> StoreWait {
        StoreWait(self.0.subscribe())
    }
}

impl StoreWait {
    /// The result of a future that waits for a store.
    ///
    /// # Errors
    /// The error with which the wait was ended.
    pub async fn of<T>(mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let ended = async move {
            match self.0.wait_for(Option::is_some).await.map(|error| error.clone()) {
                Ok(Some(error)) => error,
                Ok(None) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // What needs no store, or has its answer, is not ended.
            result = work => Ok(result),
            error = ended => Err(error),
        }
    }
}
