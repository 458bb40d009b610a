//! How endpoints stop: no new connections, idle ones closed at once, busy ones after their answer.
//!
//! One [`Drain`] per endpoint. Its accept loop and every connection hold a clone; the binary begins it, asks how many
//! connections are left, and decides when to stop waiting.
use std::sync::Arc;

use tokio::sync::watch;

/// The stopping of one endpoint. Clones are the same drain.
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

    /// Tells everybody to finish. Saying it again changes nothing.
    pub fn begin(&self) {
        self.state.begun.send_replace(true);
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        *self.state.begun.borrow()
    }

    /// Waits until it begins. Cancel-safe.
    pub async fn begun(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.state.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn enter(&self) -> OpenConnection {
        self.state.open.send_modify(|open| *open += 1);
        OpenConnection { state: self.state.clone() }
    }

    /// Connections open now.
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
    async fn whoever_waits_hears_of_the_beginning_and_of_the_end() {
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
