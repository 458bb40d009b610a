//! Executes an ensemble: passes each request through other models of the server, its members.
//!
//! `scheduling::EnsembleRun` decides which step may start with which tensors. An [`EnsembleRequest`] performs that for
//! one request: it sends requests to the members, reads their responses, and answers the client. It runs on the thread
//! of the caller until it has to wait, and then as a task of the runtime. No thread waits for it.
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::task::AtomicWaker;
use inference::{
    EntryId, Error, Request, SequenceId, Timestamp, UnreadBudget,
    backend::Execution,
    config::{EnsembleScheduling, ModelConfig},
    lock::Mutex,
};
use scheduling::{Meta, SequenceTurns};
use tokio::{runtime::Handle, sync::Semaphore};

mod admission;
mod binding;
mod permits;
mod request;
mod step;
mod tensor;
mod turns;

use crate::{executor::CallerThread, snapshot::StepSnapshot};
use admission::Admission;
pub(crate) use binding::{MemberBinding, Pins};
use request::EnsembleRequest;
use turns::TurnLines;

/// See the module documentation.
pub(crate) struct Ensemble {
    /// The configuration, without what follows from the members.
    config: Arc<ModelConfig>,
    scheduling: Arc<EnsembleScheduling>,
    /// The members as they are now. Requests that have begun keep theirs.
    binding: ArcSwap<MemberBinding>,
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
    pub(crate) fn new(
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
            binding: ArcSwap::from_pointee(binding),
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

    /// The members as they are now.
    pub(crate) fn binding(&self) -> Arc<MemberBinding> {
        self.binding.load_full()
    }

    /// From now on requests go through these members.
    pub(crate) fn bind(&self, binding: MemberBinding) {
        self.binding.store(Arc::new(binding));
    }

    /// Begins a validated request. A brief execution may happen before this function returns. Does not block.
    ///
    /// # Errors
    /// Why the members cannot be used. The request has then ended.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        meta: &Meta,
        execution: Execution,
        queued: Timestamp,
        thread: CallerThread,
    ) -> Result<(), Error> {
        let Execution { request, responder, .. } = execution;
        responder.timeline().queued(queued, request.tensors());
        let (binding, pins) = match self.pin() {
            Ok(pinned) => pinned,
            Err(error) => {
                responder.timeline().not_queued();
                drop(request);
                responder.fail(error.clone());
                return Err(error);
            }
        };
        let entry = EntryId::of_serial(self.next_entry.fetch_add(1, Relaxed));
        let cancelled = Arc::new(AtomicWaker::new());
        self.open.lock().insert(entry, cancelled.clone());
        if responder.queue_number().queued_as(entry) {
            // The request looks for a cancellation before it waits.
            cancelled.wake();
        }
        let rows = meta.batch_size.max(1);
        let begun = EnsembleRequest::new(
            self.clone(),
            (binding, pins),
            (request, rows),
            responder,
            (entry, cancelled),
        );
        match self.admission.admit() {
            Ok(admitted) => {
                let mut running = Box::pin(begun.run(admitted));
                // A thread that must not execute leaves the request to the runtime.
                if thread == CallerThread::MustNotExecute
                    || running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
                {
                    self.runtime.spawn(running);
                }
            }
            Err(waiting) => drop(self.runtime.spawn(begun.run_later(waiting))),
        }
        Ok(())
    }

    /// The client of a request has cancelled it.
    pub(crate) fn cancel(&self, entry: EntryId) {
        let waker = self.open.lock().get(&entry).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether requests of a sequence are on their way.
    pub(crate) fn has_requests_of(&self, id: &SequenceId) -> bool {
        self.turns.lock().has(id)
    }

    /// Whether a sequence may still get requests: one of its requests is on its way, or a member has the sequence.
    pub(crate) fn has_sequence(&self, id: &SequenceId) -> bool {
        self.has_requests_of(id) || self.binding().members().any(|member| member.has_sequence(id))
    }

    /// Counts a run of a step that has ended.
    fn step_ended(&self, step: usize, took: Duration) {
        let Some(count) = self.step_counts.get(step) else { return };
        count.runs.fetch_add(1, Relaxed);
        count.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
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

    /// The error of a request that comes after the server has begun to stop.
    pub(crate) fn refusal(request: &Request) -> Error {
        let id = inference::id_prefix(&request.id);
        Error::unavailable(format!(
            "{id}Server is stopping, scheduler for model has stopped accepting new inference requests"
        ))
    }

    /// The latest members, all of which stay until the pins are dropped.
    fn pin(&self) -> Result<(Arc<MemberBinding>, Pins), Error> {
        let mut binding = self.binding();
        loop {
            match binding.pin() {
                Ok(pins) => return Ok((binding, pins)),
                Err(error) => {
                    let latest = self.binding();
                    if Arc::ptr_eq(&latest, &binding) {
                        return Err(self.told(&error));
                    }
                    binding = latest;
                }
            }
        }
    }

    /// An error of a member, as the clients of the ensemble see it.
    fn told(&self, error: &Error) -> Error {
        let message = format!("in ensemble '{}', {}", self.config.name, error.message);
        Error { message: message.into(), ..error.clone() }
    }
}
