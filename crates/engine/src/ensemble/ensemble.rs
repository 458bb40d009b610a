//! An ensemble: its members, its limits, and what it has counted.
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use config::{EnsembleScheduling, ModelConfig};
use futures_util::task::AtomicWaker;
use inference::{EntryId, UnreadBudget, lock::Mutex};
use scheduling::{SequenceTurns, nanos};
use tokio::{runtime::Handle, sync::Semaphore};
use vocabulary::Error;

use super::{admission::Admission, binding::MemberBinding, turns::TurnLines};
use crate::snapshot::StepSnapshot;

mod request;
mod runner;

/// An ensemble. The models of one ensemble, which follow its members, share it.
pub(crate) struct Ensemble {
    /// The configuration, without what follows from the members.
    config: Arc<ModelConfig>,
    scheduling: Arc<EnsembleScheduling>,
    /// The members as they are now. Requests that have begun keep theirs.
    binding: Arc<ArcSwap<MemberBinding>>,
    /// For each step, permits for requests that may run at a time; empty without a limit.
    permits: Vec<Arc<Semaphore>>,
    admission: Arc<Admission>,
    /// In which order the requests of a sequence start the steps that keep order.
    turns: Arc<TurnLines>,
    /// Wakes requests that have not ended when they are cancelled.
    open: Mutex<HashMap<EntryId, Arc<AtomicWaker>>>,
    next_entry: AtomicU64,
    /// What the runs of each step took.
    step_counts: Vec<StepCount>,
    /// Responses of members are read at once, so that no budget has to count them.
    unread: Arc<UnreadBudget>,
    runtime: Handle,
}

/// How often a step has ended, and the nanoseconds of all its runs together.
#[derive(Default)]
struct StepCount {
    runs: AtomicU64,
    nanos: AtomicU64,
}

impl Ensemble {
    /// An ensemble that is bound to members. It may hold `intermediate_bytes` between its steps, unless its
    /// configuration says otherwise.
    pub(super) fn new(
        config: Arc<ModelConfig>,
        scheduling: Arc<EnsembleScheduling>,
        binding: MemberBinding,
        intermediate_bytes: usize,
        runtime: Handle,
    ) -> Self {
        let permits = scheduling.max_inflight_requests.map_or_else(Vec::new, |most| {
            log::info!("Ensemble model '{}' configured with max_inflight_requests: {most}", config.name);
            let most =
                usize::try_from(most.get()).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
            scheduling.steps.iter().map(|_| Arc::new(Semaphore::new(most))).collect()
        });
        let steps = scheduling.steps.len();
        let step_counts = scheduling.steps.iter().map(|_| StepCount::default()).collect();
        let limit = scheduling.max_intermediate_bytes.map_or(intermediate_bytes, usize::from);
        Self {
            config,
            scheduling,
            binding: Arc::new(ArcSwap::from_pointee(binding)),
            permits,
            admission: Arc::new(Admission::new(limit)),
            turns: Arc::new(Mutex::new(SequenceTurns::new(steps))),
            open: Mutex::default(),
            step_counts,
            next_entry: AtomicU64::new(0),
            unread: UnreadBudget::unlimited(),
            runtime,
        }
    }

    pub(crate) fn scheduling(&self) -> &Arc<EnsembleScheduling> {
        &self.scheduling
    }

    /// The members as they are now, for the ensembles that have this one as a member.
    pub(crate) fn members(&self) -> &Arc<ArcSwap<MemberBinding>> {
        &self.binding
    }

    /// The members as they are now.
    pub(super) fn binding(&self) -> Arc<MemberBinding> {
        self.binding.load_full()
    }

    /// From now on requests go through these members.
    pub(super) fn bind(&self, binding: MemberBinding) {
        self.binding.store(Arc::new(binding));
    }

    /// Counts a run of a step that has ended.
    fn step_ended(&self, step: usize, took: Duration) {
        let Some(count) = self.step_counts.get(step) else { return };
        count.runs.fetch_add(1, Relaxed);
        count.nanos.fetch_add(nanos(took), Relaxed);
    }

    /// The steps, and what their runs took.
    pub(crate) fn steps(&self) -> Vec<StepSnapshot> {
        let steps = self.scheduling.steps.iter().zip(&self.step_counts);
        let shown = steps.map(|(step, count)| StepSnapshot {
            model: step.model.clone(),
            version: step.version,
            runs: count.runs.load(Relaxed),
            time: Duration::from_nanos(count.nanos.load(Relaxed)),
        });
        shown.collect()
    }

    /// The number of requests that wait until the ensemble holds fewer bytes.
    pub(crate) fn pending(&self) -> usize {
        self.admission.waiting()
    }

    /// An error of a member, as the clients of the ensemble see it.
    fn told(&self, error: &Error) -> Error {
        let message = format!("in ensemble '{}', {}", self.config.name, error.message);
        Error { message: message.into(), ..error.clone() }
    }
}
