//! Performs what a step of the driver asks for.
//!
//! A thread with an event for the executor locks the driver, steps it, and performs the actions outside the lock.
use std::sync::{Arc, Weak};

use inference::{
    CallerThread, Error,
    backend::{Execution, SlotGuard, SlotOwner, SlotRef},
};
use scheduling::{Entry, InstanceId, Meta, Note, Rejected, VacatedSlot};

use super::{
    super::{
        driver::{Actions, Driver},
        instance::{Assignment, WorkerMessage},
    },
    Executor,
};
use crate::{
    clock::{TimerTarget, now},
    limiter::{GrantListener, PendingGrants},
    rejection::cancelled,
};

impl Executor {
    /// Does what may step the driver: here, or on the batching thread if the model has one.
    pub(super) fn in_step(self: &Arc<Self>, event: impl FnOnce(&Arc<Self>) + Send + 'static) {
        match &self.batching {
            None => event(self),
            Some(batching) => {
                let me = self.clone();
                batching.put(Box::new(move || event(&me)));
            }
        }
    }

    /// Enqueues a request on the batching thread. If it is refused, its stream has the error.
    pub(super) fn enqueue_later(self: &Arc<Self>, meta: Meta, execution: Box<Execution>) {
        self.in_step(move |me| {
            // The request has been answered with the error.
            let _ = me.enqueue_here(meta, execution, CallerThread::MustNotExecute);
        });
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
    pub(super) fn free_states(&self, vacated: &[VacatedSlot]) {
        self.sequences.iter().for_each(|sequences| sequences.free_states(vacated));
    }

    pub(super) fn refuse(&self, rejected: Vec<Rejected<Box<Execution>>>) {
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
