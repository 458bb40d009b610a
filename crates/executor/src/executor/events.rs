//! Who brings events to the driver, such as requests, and on which thread they are handled.
//!
//! A thread with an event locks the driver, which applies the event and steps. Then the thread performs the actions
//! outside of the lock.
use std::sync::Arc;

use host::{TimerTarget, now};
use inference::{
    EntryId, ModelRunner, ResponseOrder, RunThread, SequenceId, SequencePosition, Timestamp,
    backend::{Execution, SlotGuard, SlotOwner, SlotRef},
};
use scheduling::{Entry, InstanceId, Rejected, SchedulingAttributes};
use vocabulary::Error;

use super::{
    super::{driver::Actions, driver_event::DriverEvent},
    Executor,
};
use crate::limiter::{GrantListener, PendingGrants};

impl Executor {
    /// Enqueues a request, and runs it on this thread if it is brief and the thread may.
    fn enqueue_here(
        self: &Arc<Self>,
        attributes: SchedulingAttributes,
        execution: Box<Execution>,
        thread: RunThread,
    ) -> Result<(), Error> {
        let mut actions = self.step(DriverEvent::Enqueue { attributes, execution });
        if let Some(Rejected { payload, reason }) = actions.refused.take() {
            payload.responder.timeline().not_queued();
            let error = self.rejection_errors.error(reason, &payload.request);
            payload.fail(error.clone());
            return Err(error);
        }
        let at = actions.at;
        let here = match thread {
            RunThread::CallersMay => self.take_brief(&mut actions),
            RunThread::OnlyOwn => None,
        };
        self.perform(actions).notify();
        if let Some((first, lent)) = here {
            self.run_here(first, at, &lent);
        }
        Ok(())
    }

    /// Lets the driver handle an event. The caller performs the actions.
    pub(super) fn step(&self, event: DriverEvent) -> Actions {
        let mut driver = self.driver.lock();
        let at = if let DriverEvent::Finished { end, .. } = &event { *end } else { now() };
        driver.handle(at, event, &self.orders)
    }

    /// Handles an event on this thread. The threads of the instances run the batches that become due.
    pub(super) fn handle(self: &Arc<Self>, event: DriverEvent) {
        let actions = self.step(event);
        self.perform(actions).notify();
    }

    /// As [`handle`](Self::handle), but later and on the batching thread if the model has one.
    pub(super) fn dispatch(self: &Arc<Self>, event: DriverEvent) {
        self.in_step(|me| me.handle(event));
    }

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

    /// Performs the actions, except for the grants to instances, which may belong to other models: the caller notifies
    /// their listeners.
    pub(super) fn perform(self: &Arc<Self>, actions: Actions) -> PendingGrants {
        self.sequences.iter().for_each(|sequences| sequences.free_states(&actions.vacated));
        self.refuse(actions.rejected);
        for id in actions.restarts {
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
            let me = Arc::downgrade(self);
            self.threads.clock.wake_at(at, me);
        }
        for (instance, movable) in actions.departed {
            self.instances.shut_down(instance, movable);
        }
        for assignment in actions.assignments {
            self.instances.run(self.runner(), assignment);
        }
        actions.pending_grants
    }

    /// Answers requests that no instance will run.
    pub(super) fn refuse(&self, rejected: Vec<Rejected<Box<Execution>>>) {
        for Rejected { payload, reason } in rejected {
            let error = self
                .fault
                .get()
                .cloned()
                .unwrap_or_else(|| self.rejection_errors.error(reason, &payload.request));
            payload.fail(error);
        }
    }
}

impl ModelRunner for Executor {
    // If a plug-in forms the batches, only the answer has the error.
    fn enqueue(
        self: Arc<Self>,
        attributes: SchedulingAttributes,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: RunThread,
    ) -> Result<(), Error> {
        // Set before another thread may execute the request.
        execution.responder.timeline().queued(queued, execution.request.tensors());
        if self.batching.is_some() {
            // The request has been answered with the error.
            self.in_step(|me| _ = me.enqueue_here(attributes, execution, RunThread::OnlyOwn));
            return Ok(());
        }
        self.enqueue_here(attributes, execution, thread)
    }

    fn cancel(self: Arc<Self>, entry: EntryId) {
        self.dispatch(DriverEvent::Cancelled(entry));
    }

    fn response_order(&self) -> Option<&Arc<ResponseOrder>> {
        self.orders.on_arrival()
    }

    fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    fn ready_here(&self) -> bool {
        let answer = self.backend_handle.ready();
        if let Err(Error { message, .. }) = &answer {
            log::debug!("Model '{}' version {} is not ready: {message}", self.config.name, self.version);
        }
        answer.is_ok()
    }

    fn has_sequence(&self, id: &SequenceId) -> bool {
        self.sequences.is_some() && self.driver.lock().scheduler().has_sequence(id)
    }

    fn continues(&self, step: &SequencePosition) -> bool {
        !step.start && step.id.as_ref().is_some_and(|id| self.has_sequence(id))
    }

    fn live_sequences(&self) -> usize {
        if self.sequences.is_some() { self.driver.lock().scheduler().live_sequences() } else { 0 }
    }

    fn end_queue_delay(self: Arc<Self>) {
        self.dispatch(DriverEvent::EndQueueDelay);
    }

    fn drain(self: Arc<Self>) {
        self.dispatch(DriverEvent::Drain);
    }

    fn close(self: Arc<Self>) {
        self.dispatch(DriverEvent::Drain);
        self.end();
    }
}

impl SlotOwner for Executor {
    fn returned(self: Arc<Self>, instance: InstanceId, slot: u32) {
        self.handle(DriverEvent::Released { instance, slot });
    }

    fn reschedule(
        self: Arc<Self>,
        mut slot_ref: SlotRef,
        execution: Execution,
    ) -> Result<(), (Error, Execution)> {
        slot_ref.attributes.sequence.start = false;
        let SlotRef { instance, slot, ref attributes, .. } = slot_ref;
        let id = execution.responder.entry().expect("a request in a slot has waited for it");
        let entry =
            Entry { id, attributes: attributes.clone(), arrived: now(), payload: Box::new(execution) };
        let mut actions = self.step(DriverEvent::Reschedule { instance, slot, entry });
        if let Some(Rejected { payload, reason }) = actions.refused.take() {
            let error = self.rejection_errors.error(reason, &payload.request);
            return Err((error, payload.with_slot_guard(SlotGuard::new(slot_ref))));
        }
        self.perform(actions).notify();
        Ok(())
    }
}

impl GrantListener for Executor {
    fn granted(self: Arc<Self>, instance: InstanceId) -> PendingGrants {
        let event = DriverEvent::Granted(instance);
        if self.batching.is_some() {
            self.dispatch(event);
            return PendingGrants::default();
        }
        let actions = self.step(event);
        self.perform(actions)
    }
}

impl TimerTarget for Executor {
    fn wake(self: Arc<Self>) {
        self.dispatch(DriverEvent::Woken);
    }
}
