//! Who brings events to the driver, and on which thread they are handled.
//!
//! A thread with an event locks the driver, which applies the event and steps. Then the thread performs the actions
//! outside of the lock.
use std::sync::Arc;

use host::{TimerTarget, now};
use inference::backend::{Execution, SlotGuard, SlotOwner, SlotRef};
use scheduling::{Entry, InstanceId, Rejected};
use vocabulary::Error;

use super::{
    super::{driver::Actions, driver_event::DriverEvent},
    Executor,
};
use crate::limiter::{GrantListener, PendingGrants};

impl Executor {
    /// Lets the driver handle an event. The caller performs the actions.
    pub(super) fn step(&self, event: DriverEvent) -> Actions {
        let mut driver = self.driver.lock();
        let at = if let DriverEvent::Finished(finished) = &event { finished.end } else { now() };
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
