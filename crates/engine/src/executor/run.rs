//! Runs batches: on which thread they run, what happens after a panic, and which thread asks the driver for more work.
//!
//! A thread with an event for the executor locks the driver, steps it, and performs the actions outside the lock.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use inference::{
    Error, FailureReason, Request, Tensor, Timestamp,
    backend::{BackendInstance, Execution, SlotGuard, SlotOwner, SlotRef},
    panic_message,
};
use scheduling::{Entry, InstanceId, Note, Rejected, Row, ScheduledBatch, VacatedSlot};

use super::{
    Executor,
    assemble::assemble,
    driver::{Actions, Driver, Executed},
    instance::{Assignment, MovableInstance, WorkerMessage, discard},
};
use crate::{
    clock::{TimerTarget, now, unix_time},
    limiter::{GrantListener, PendingGrants},
    network_threads::LentThread,
    rejection::cancelled,
};

/// An instance has finished a batch.
struct FinishedBatch {
    end: Timestamp,
    instance: InstanceId,
    movable: Option<MovableInstance>,
    executed: Option<Executed>,
}

impl Executor {
    /// Whether a batch may run on the thread of the caller whose request completed it. `measured`: the last executions of
    /// the model were brief.
    pub(super) fn may_run_here(&self, assignment: &Assignment, measured: bool) -> bool {
        // A decoupled model may block on a slow client. Large tensors take long, whatever the last executions took.
        assignment.movable.as_ref().is_some_and(|movable| movable.is_brief().unwrap_or(measured))
            && !self.config.decoupled
            && input_bytes(&assignment.batch.rows) <= BRIEF_BYTES
    }

    /// Runs a batch, and then the batches that become due for the same instance, for a short time.
    pub(super) fn run_here(self: &Arc<Self>, first: Assignment, since: Timestamp, thread: &LentThread<'_>) {
        let mut next = Some(first);
        while let Some(assignment) = next {
            let instance = assignment.batch.instance;
            next = self.run(assignment, &mut None);
            let stays = |next: &mut Assignment| !self.may_run_here(next, true) || now() - since > BRIEF_TIME;
            if let Some(late) = next.take_if(stays) {
                self.instances.put(instance, WorkerMessage::Work(late));
            }
            if next.is_some() {
                thread.share_tasks();
            }
        }
    }

    /// Runs a batch that has waited for this thread, and then the batches that become due for the same instance.
    pub(super) fn run_own(
        self: &Arc<Self>,
        mut first: Assignment,
        thread_bound: &mut Option<Box<dyn BackendInstance>>,
    ) {
        let rejected = self.driver.lock().grow(now(), &mut first.batch, &self.orders);
        self.refuse(rejected);
        let mut next = Some(first);
        while let Some(assignment) = next {
            next = self.run(assignment, thread_bound);
        }
    }

    /// Runs a batch on this thread. Returns the next batch for the same instance, if one is due.
    pub(super) fn run(
        self: &Arc<Self>,
        assignment: Assignment,
        thread_bound: &mut Option<Box<dyn BackendInstance>>,
    ) -> Option<Assignment> {
        let Assignment { batch: ScheduledBatch { instance, mut rows, end: batch_end }, mut movable } =
            assignment;
        let start = now();
        rows.retain_mut(|row| !answer_if_cancelled(row));
        let requests = rows.iter().filter(|row| matches!(row, Row::Request { .. })).count();
        if requests > 0 {
            self.counters.batch_began(batch_end);
            let slot_owner = self.sequences.as_ref().map(|_| self.clone() as Arc<dyn SlotOwner>);
            let assembled = assemble(rows, instance, self.sequences.as_ref().zip(slot_owner.as_ref()));
            let execution_times = assembled.batch.execution_times.clone();
            let outcome = catch_unwind(AssertUnwindSafe(|| match (&mut movable, thread_bound.as_mut()) {
                (Some(movable), _) => movable.execute(assembled.batch),
                (None, Some(thread_bound)) => thread_bound.execute(assembled.batch),
                (None, None) => unreachable!("an instance lies on its thread or comes with its work"),
            }));
            if let Err(panic) = outcome {
                self.fail_version(instance, panic.as_ref());
                // The state of the instance is unknown, so the executor never uses it again. Its own thread drops it: this
                // one may be the client's, and the end of an instance may take long.
                discard(thread_bound.take());
                if let Some(movable) = movable {
                    self.instances.put(instance, WorkerMessage::Discard(movable));
                }
                return None;
            }
            self.counters.executed(&execution_times, now(), unix_time);
        }
        let end = now();
        let nanos = u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX);
        let executed = (requests > 0).then_some(Executed { nanos, requests });
        let finished = FinishedBatch { end, instance, movable, executed };
        if self.batching.is_some() {
            self.in_step(|me| _ = me.finished(finished, |_| false));
            return None;
        }
        self.finished(finished, |next| next.batch.instance == instance)
    }

    /// Returns the first of the next batches that `keep` accepts.
    fn finished(
        self: &Arc<Self>,
        finished: FinishedBatch,
        keep: impl Fn(&Assignment) -> bool,
    ) -> Option<Assignment> {
        let FinishedBatch { end, instance, movable, executed } = finished;
        let mut driver = self.driver.lock();
        driver.finished(instance, movable, executed);
        let actions = driver.step(end, &self.orders);
        drop(driver);
        self.notify_if_closing();
        self.perform(actions, |assignment, _| keep(assignment))
    }

    /// Performs the actions of the driver, but returns the first batch that `keep` accepts.
    pub(super) fn perform(
        self: &Arc<Self>,
        mut actions: Actions,
        keep: impl FnMut(&Assignment, bool) -> bool,
    ) -> Option<Assignment> {
        let pending_grants = std::mem::take(&mut actions.pending_grants);
        let kept = self.perform_here(actions, keep);
        pending_grants.notify();
        kept
    }

    /// Performs the actions except for the grants to instances, which may belong to other models.
    fn perform_here(
        self: &Arc<Self>,
        actions: Actions,
        mut keep: impl FnMut(&Assignment, bool) -> bool,
    ) -> Option<Assignment> {
        self.free_states(&actions.vacated);
        self.refuse(actions.rejected);
        for Note::Restarted(id) in actions.notes {
            log::warn!(
                "sequence {id} for model '{}' has a conflict. The previous sequence did not end before this sequence start. \
                 Previous sequence will be terminated early.",
                self.config.name
            );
        }
        if actions.sequences_have_ended {
            self.without_sequences.notify_waiters();
        }
        if let Some(at) = actions.scheduled_wakeup {
            self.threads.clock.wake_at(at, Arc::downgrade(self) as Weak<dyn TimerTarget>);
        }
        for (instance, movable) in actions.departed {
            self.instances.put(instance, WorkerMessage::Shutdown(movable));
        }
        let mut kept = None;
        for assignment in actions.assignments {
            if kept.is_none() && keep(&assignment, actions.brief) {
                kept = Some(assignment);
            } else {
                self.instances.put(assignment.batch.instance, WorkerMessage::Work(assignment));
            }
        }
        kept
    }

    /// Frees the implicit states of sequences that are over.
    fn free_states(&self, vacated: &[VacatedSlot]) {
        self.sequences.iter().for_each(|sequences| sequences.free_states(vacated));
    }

    fn refuse(&self, rejected: Vec<Rejected<Box<Execution>>>) {
        for Rejected { payload, reason } in rejected {
            let error = self
                .fault()
                .cloned()
                .unwrap_or_else(|| self.rejection_errors.error(reason, &payload.request));
            payload.fail(error);
        }
    }

    /// Locks the driver, applies a change, steps the driver, and performs the actions. Work may be found for any
    /// instance. Happens later on the batching thread if the model has one.
    pub(super) fn with_driver(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Driver) -> Vec<Rejected<Box<Execution>>> + Send + 'static,
    ) {
        self.in_step(|me| me.with_driver_here(change));
    }

    /// As [`with_driver`](Self::with_driver), but on this thread.
    pub(super) fn with_driver_here(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Driver) -> Vec<Rejected<Box<Execution>>>,
    ) {
        let mut driver = self.driver.lock();
        let rejected = change(&mut driver);
        let actions = driver.step(now(), &self.orders);
        drop(driver);
        self.refuse(rejected);
        self.perform(actions, |_, _| false);
    }

    /// The backend has panicked: the version stops running, and the executor answers the waiting requests.
    fn fail_version(&self, instance: InstanceId, panic: &(dyn std::any::Any + Send)) {
        let message = format!(
            "the backend of model '{}' version {} panicked: {}",
            self.config.name,
            self.version,
            panic_message(panic)
        );
        log::error!("{message}");
        let fault = Error::internal(message).because(FailureReason::Backend);
        let _ = self.fault.set(fault);
        let (waiting, vacated, pending_grants) = {
            let mut driver = self.driver.lock();
            let (mut waiting, pending_grants) = driver.lost(now(), instance);
            waiting.extend(driver.give_up());
            (waiting, driver.vacated(), pending_grants)
        };
        self.free_states(&vacated);
        self.refuse(waiting);
        pending_grants.notify();
        self.without_sequences.notify_waiters();
        self.notify_if_closing();
    }
}

/// Requests with inputs up to this size may run on the caller's thread.
const BRIEF_BYTES: usize = 64 << 10;
/// How long a caller's thread runs the batches of other callers after its own.
const BRIEF_TIME: Duration = Duration::from_micros(100);

fn input_bytes(rows: &[Row<Box<Execution>>]) -> usize {
    let requests = rows.iter().filter_map(|row| match row {
        Row::Request { entry, .. } => Some(&entry.payload.request),
        Row::Padding => None,
    });
    requests.flat_map(Request::tensors).map(Tensor::byte_size).sum()
}

/// Answers a request that was cancelled before its batch runs. Returns true if it did so. A request of a sequence runs
/// although it was cancelled: otherwise the model would miss a step.
fn answer_if_cancelled(row: &mut Row<Box<Execution>>) -> bool {
    let Row::Request { entry, slot: None } = row else { return false };
    let cancelled_by_client = entry.payload.responder.is_cancelled();
    if cancelled_by_client {
        entry.payload.responder.clone().fail(cancelled());
    }
    cancelled_by_client
}

impl SlotOwner for Executor {
    fn returned(self: Arc<Self>, instance: InstanceId, slot: u32) {
        let at = now();
        let mut driver = self.driver.lock();
        // A busy instance asks the driver for more work when it has finished.
        if driver.returned(at, instance, slot) {
            let actions = driver.step(at, &self.orders);
            drop(driver);
            self.perform(actions, |_, _| false);
        }
    }

    fn reschedule(
        self: Arc<Self>,
        mut slot_ref: SlotRef,
        execution: Execution,
    ) -> Result<(), (Error, Execution)> {
        let at = now();
        let (instance, slot) = (slot_ref.instance, slot_ref.slot);
        slot_ref.meta.sequence.start = false;
        let id = execution.responder.entry().expect("a request in a slot has waited for it");
        let mut driver = self.driver.lock();
        // Checked under the lock, so that a later cancellation finds the entry.
        if execution.responder.is_cancelled() {
            drop(driver);
            return Err((cancelled(), execution.with_slot_guard(SlotGuard::new(slot_ref))));
        }
        let entry = Entry { id, meta: slot_ref.meta.clone(), arrived: at, payload: Box::new(execution) };
        match driver.reschedule(instance, slot, entry) {
            Ok(()) => {
                let actions = driver.step(at, &self.orders);
                drop(driver);
                self.perform(actions, |_, _| false);
                Ok(())
            }
            Err(Rejected { payload, reason }) => {
                drop(driver);
                let error = self.rejection_errors.error(reason, &payload.request);
                Err((error, payload.with_slot_guard(SlotGuard::new(slot_ref))))
            }
        }
    }
}

impl GrantListener for Executor {
    fn granted(self: Arc<Self>, instance: InstanceId) -> PendingGrants {
        if self.batching.is_some() {
            self.in_step(move |me| me.granted_here(instance).notify());
            return PendingGrants::default();
        }
        self.granted_here(instance)
    }
}

impl Executor {
    fn granted_here(self: &Arc<Self>, instance: InstanceId) -> PendingGrants {
        let mut driver = self.driver.lock();
        driver.granted(instance);
        let mut actions = driver.step(now(), &self.orders);
        drop(driver);
        let pending_grants = std::mem::take(&mut actions.pending_grants);
        self.perform_here(actions, |_, _| false);
        pending_grants
    }
}

impl TimerTarget for Executor {
    fn wake(self: Arc<Self>) {
        self.with_driver(|driver| {
            driver.woken();
            Vec::new()
        });
    }
}
