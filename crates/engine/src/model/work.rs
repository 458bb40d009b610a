//! What stands behind the front of a model version.
use std::sync::Arc;

use inference::{
    EntryId, Error, Request, SequenceId, Timestamp,
    backend::{Execution, MemoryUsage},
};
use scheduling::Meta;

use crate::{
    ensemble::Ensemble,
    executor::{CallerThread, Executor, ExecutorView, WaitingWork},
    snapshot::QueueSnapshot,
};

/// Does the work of a model version.
#[derive(Clone)]
pub(super) enum ModelWork {
    /// A backend with instances.
    Executor(Arc<Executor>),
    /// Other models.
    Ensemble(Arc<Ensemble>),
}

impl ModelWork {
    pub(super) fn executor(&self) -> Option<&Arc<Executor>> {
        match self {
            Self::Executor(executor) => Some(executor),
            Self::Ensemble(_) => None,
        }
    }

    pub(super) fn ensemble(&self) -> Option<&Arc<Ensemble>> {
        match self {
            Self::Executor(_) => None,
            Self::Ensemble(ensemble) => Some(ensemble),
        }
    }

    /// Queues or begins a validated request. A brief execution may happen before this function returns, if the thread may
    /// execute.
    ///
    /// # Errors
    /// Why the request is refused. It has then ended.
    pub(super) fn enqueue(
        &self,
        meta: Meta,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: CallerThread,
    ) -> Result<(), Error> {
        match self {
            Self::Executor(executor) => executor.enqueue(meta, execution, queued, thread),
            Self::Ensemble(ensemble) => ensemble.enqueue(&meta, *execution, queued, thread),
        }
    }

    /// The client of a waiting request has cancelled it.
    pub(super) fn cancel(&self, entry: EntryId) {
        match self {
            Self::Executor(executor) => executor.cancel(entry),
            Self::Ensemble(ensemble) => ensemble.cancel(entry),
        }
    }

    /// The error of a request that comes after the server has begun to stop.
    pub(super) fn refusal(&self, request: &Request) -> Error {
        match self {
            Self::Executor(executor) => executor.refusal(request),
            Self::Ensemble(_) => Ensemble::refusal(request),
        }
    }

    /// The reason why the version cannot be used any more. The members of an ensemble have their own.
    pub(super) fn fault(&self) -> Option<&Error> {
        self.executor().and_then(|executor| executor.fault())
    }

    /// Whether the files of the backend have changed since it opened the model. May block.
    pub(super) fn is_outdated(&self) -> bool {
        self.executor().is_some_and(|executor| executor.is_outdated())
    }

    /// The memory that the version uses, as far as its backend knows.
    pub(super) fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.executor().map(|executor| executor.memory_usage()).unwrap_or_default()
    }

    /// How often processes of the version were started again, if its backend knows.
    pub(super) fn process_restarts(&self) -> Option<u64> {
        self.executor()?.process_restarts()
    }

    /// The work that waits. The members of an ensemble have the time.
    pub(super) fn waiting_work(&self) -> WaitingWork {
        match self {
            Self::Executor(executor) => executor.waiting_work(),
            Self::Ensemble(ensemble) => WaitingWork { requests: ensemble.pending(), time: None },
        }
    }

    /// What waits and runs here.
    pub(super) fn look(&self) -> ExecutorView {
        match self {
            Self::Executor(executor) => executor.look(),
            Self::Ensemble(ensemble) => {
                let queue = QueueSnapshot { requests: ensemble.pending(), ..QueueSnapshot::default() };
                ExecutorView { queue, ..ExecutorView::default() }
            }
        }
    }

    /// Whether a sequence may still get requests here.
    pub(super) fn has_sequence(&self, id: &SequenceId) -> bool {
        match self {
            Self::Executor(executor) => executor.has_sequence(id),
            Self::Ensemble(ensemble) => ensemble.has_sequence(id),
        }
    }

    /// The number of sequences that may still get requests here. Those of an ensemble are counted by its members.
    pub(super) fn live_sequences(&self) -> usize {
        self.executor().map_or(0, |executor| executor.live_sequences())
    }

    /// Returns when no sequence lives here. Those of an ensemble end with its members.
    pub(super) async fn sequences_ended(&self) {
        if let Self::Executor(executor) = self {
            executor.sequences_ended().await;
        }
    }

    /// Whether a backend takes part in the decision that the version is ready.
    pub(super) fn reports_readiness(&self) -> bool {
        self.executor().is_some_and(|executor| executor.reports_readiness())
    }

    /// Whether requests can be taken, as the backend reports it.
    pub(super) async fn ready(&self) -> bool {
        match self {
            Self::Executor(executor) => executor.ready().await,
            Self::Ensemble(_) => true,
        }
    }

    /// As [`ready`](Self::ready). Blocks as long as the backend does.
    pub(super) fn ready_here(&self) -> bool {
        self.executor().is_none_or(|executor| executor.ready_here())
    }

    /// From now on, no request waits for others to share its batch.
    pub(super) fn end_queue_delay(&self) {
        if let Self::Executor(executor) = self {
            executor.end_queue_delay();
        }
    }

    /// Accepts no new requests. Accepted requests continue.
    pub(super) fn drain(&self) {
        if let Self::Executor(executor) = self {
            executor.drain();
        }
    }

    /// Ends what executes requests, after the last one has ended. Blocks.
    pub(super) fn close(&self) {
        if let Self::Executor(executor) = self {
            executor.drain();
            executor.close();
        }
    }
}
