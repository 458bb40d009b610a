//! What the executor asks its backend besides running requests.
use std::sync::Arc;

use inference::{ModelRunner, backend::MemoryUsage};

use super::Executor;

impl Executor {
    /// The server stops: the ends of instances wait no longer for what they were given.
    pub fn abandon_releases(&self) {
        // A backend that has ended waits for nothing.
        let _ = self.backend_handle.ask(|backend| backend.abandon_releases());
    }

    /// Returns when the backend has released all that its instances were given.
    pub async fn released(&self) {
        self.backend_handle.released().await;
    }

    /// Memory that the backend holds for the model, by kind.
    pub fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.backend_handle.memory_usage()
    }

    /// How often processes of the model were started again, if its backend knows.
    pub fn process_restarts(&self) -> Option<u64> {
        self.backend_handle.process_restarts()
    }

    /// Whether the files of the backend have changed since it opened the model. May block.
    pub fn is_outdated(&self) -> bool {
        self.backend_handle.ask(|backend| backend.is_outdated()).unwrap_or_default()
    }

    /// Whether the backend takes part in the decision that the version is ready.
    pub fn reports_readiness(&self) -> bool {
        self.backend_handle.reports_readiness()
    }

    /// Whether the instances can take requests, as the backend reports it. A thread that may block asks the backend.
    /// Must be called in a tokio runtime.
    pub async fn ready(self: &Arc<Self>) -> bool {
        if !self.reports_readiness() {
            return true;
        }
        // Released when the backend answers, even if the caller no longer waits.
        let turn = self.backend_handle.turn().await;
        let me = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            me.ready_here()
        });
        answer.await.unwrap_or(false)
    }
}
