//! What does the work of a loaded version. More is known of it than a model asks of its runner.
use std::sync::Arc;

use executor::{
    Executor, Limiter, Workload,
    snapshot::{ExecutorSnapshot, QueueSnapshot},
};
use inference::backend::MemoryUsage;

use crate::{ensemble::EnsembleVersion, snapshot::StepSnapshot};

/// See the module documentation.
pub(crate) enum LoadedWork {
    /// A backend with instances.
    Executor(Arc<Executor>),
    /// Other models.
    Ensemble(Arc<EnsembleVersion>),
}

impl LoadedWork {
    pub(crate) fn executor(&self) -> Option<&Arc<Executor>> {
        match self {
            Self::Executor(executor) => Some(executor),
            Self::Ensemble(_) => None,
        }
    }

    pub(crate) fn ensemble(&self) -> Option<&Arc<EnsembleVersion>> {
        match self {
            Self::Executor(_) => None,
            Self::Ensemble(ensemble) => Some(ensemble),
        }
    }

    /// The memory that the model uses, as far as its backend knows.
    pub(crate) fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.executor().map(|executor| executor.memory_usage()).unwrap_or_default()
    }

    /// How often processes of the model were started again, if its backend knows.
    pub(crate) fn process_restarts(&self) -> Option<u64> {
        self.executor()?.process_restarts()
    }

    /// How much there is to do. Of an ensemble it tells only what waits: the members have the rest.
    pub(crate) fn workload(&self) -> Workload {
        match self {
            Self::Executor(executor) => executor.workload(),
            Self::Ensemble(version) => {
                Workload { requests: version.ensemble().pending(), ..Workload::default() }
            }
        }
    }

    /// What waits and runs here. An ensemble has no instances of its own.
    pub(crate) fn look(&self) -> ExecutorSnapshot {
        match self {
            Self::Executor(executor) => executor.look(),
            Self::Ensemble(version) => {
                let requests = version.ensemble().pending();
                ExecutorSnapshot {
                    queue: QueueSnapshot { requests, ..QueueSnapshot::default() },
                    ..ExecutorSnapshot::default()
                }
            }
        }
    }

    /// The steps of an ensemble.
    pub(crate) fn steps(&self) -> Vec<StepSnapshot> {
        self.ensemble().map(|version| version.ensemble().steps()).unwrap_or_default()
    }

    /// The server's rate limiter, if it has one and the model knows it.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.executor()?.limiter()
    }

    /// Whether the files of the backend have changed since it opened the model. May block.
    pub(crate) fn is_outdated(&self) -> bool {
        self.executor().is_some_and(|executor| executor.is_outdated())
    }

    /// Whether the backend takes part in the decision that the version is ready.
    pub(crate) fn reports_readiness(&self) -> bool {
        self.executor().is_some_and(|executor| executor.reports_readiness())
    }

    /// Whether requests can be taken, as the backend reports it. A thread that may block asks the backend. Must be called in
    /// a tokio runtime.
    pub(crate) async fn ready(&self) -> bool {
        match self {
            Self::Executor(executor) => executor.ready().await,
            Self::Ensemble(_) => true,
        }
    }

    /// Returns when no sequence lives here. Those of an ensemble end with its members.
    pub(super) async fn sequences_ended(&self) {
        if let Self::Executor(executor) = self {
            executor.sequences_ended().await;
        }
    }

    /// Returns when the backend has released all that it was given, after the last request has ended.
    pub(super) async fn released(&self) {
        if let Self::Executor(executor) = self {
            executor.released().await;
        }
    }

    /// The server stops: the ends of instances wait no longer for what they were given.
    pub(super) fn abandon_releases(&self) {
        self.executor().iter().for_each(|executor| executor.abandon_releases());
    }
}
