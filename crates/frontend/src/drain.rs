//! How endpoints stop: they accept no new connections, close idle connections at once, and close busy connections after
//! their answer.
//!
//! Each endpoint has one [`Drain`]. Its accept loop and every connection have a clone. The binary begins the drain,
//! reads the number of open connections, and decides when to stop waiting.
use std::sync::Arc;

use tokio::sync::watch;

/// The drain of one endpoint. All clones share one state.
#[derive(Clone, Debug)]
pub struct Drain {
    state: Arc<DrainState>,
}

#[derive(Debug)]
struct DrainState {
    begun: watch::Sender<bool>,
    open: watch::Sender<usize>,
}

/// Counts one connection as open for as long as it lives.
#[derive(Debug)]
pub struct OpenConnection {
    state: Arc<DrainState>,
}

impl Default for Drain {
    fn default() -> Self {
        Self { state: Arc::new(DrainState { begun: watch::Sender::new(false), open: watch::Sender::new(0) }) }
    }
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain. Later calls have no effect.
    pub fn begin(&self) {
        self.state.begun.send_replace(true);
    }

    /// Tells whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        *self.state.begun.borrow()
    }

    /// Waits until the drain begins. Cancel-safe.
    pub async fn begun(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.state.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn enter(&self) -> OpenConnection {
        self.state.open.send_modify(|open| *open += 1);
        OpenConnection { state: self.state.clone() }
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        *self.state.open.borrow()
    }

    /// Waits until no connection is open. Cancel-safe.
    pub async fn emptied(&self) {
        let _ = self.state.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.state.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_tasks_learn_of_the_beginning_and_the_end_of_a_drain() {
        let drain = Drain::new();
        let connection = drain.enter();
        assert_eq!((drain.open(), drain.has_begun()), (1, false));
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move {
                drain.begun().await;
                drop(connection);
            }
        });
        drain.begin();
        drain.emptied().await;
        waiting.await.unwrap();
        assert_eq!(drain.open(), 0);
        drain.begun().await;
    }
}
