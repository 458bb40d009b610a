//! One request in the hands of a backend: what it brings, what it may remember, and how it comes back.
use std::{fmt, sync::Arc};

use scheduling::{InstanceId, Meta};

use super::SequenceState;
use crate::{Error, Request, Responder};

/// A request and the way to answer it.
///
/// The request has been checked against the configuration: its inputs are named, typed and shaped as configured, the
/// batch dimension first if the model has one, configured reshapes applied. Control inputs of sequence models are among
/// its inputs. Dropping the execution gives the request back: the next one of its sequence may then run.
#[derive(Debug)]
pub struct Execution {
    /// What is asked. A padding row asks for no output at all.
    pub request: Request,
    /// Where the answer goes.
    pub responder: Responder,
    /// What the model remembers of the request's sequence; `None` for models without `state`.
    pub state: Option<SequenceState>,
    slot_guard: SlotGuard,
}

impl Execution {
    /// A request that nobody lent.
    pub fn new(request: Request, responder: Responder) -> Self {
        Self { request, responder, state: None, slot_guard: SlotGuard(None) }
    }

    /// The same request, in a slot of a sequence model.
    #[must_use]
    pub fn with_slot_guard(self, slot_guard: SlotGuard) -> Self {
        Self { slot_guard, ..self }
    }

    /// The same request, with what its sequence remembers.
    #[must_use]
    pub fn with_state(self, state: Option<SequenceState>) -> Self {
        Self { state, ..self }
    }

    /// Gives the request back to be executed again, with others that have come meanwhile (iterative sequences;
    /// `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`). What was answered so far stays answered.
    ///
    /// # Errors
    /// The model is not configured for it, or its sequence has ended; the execution comes back and must be answered.
    #[expect(clippy::result_large_err, reason = "the refused execution travels in the error")]
    pub fn reschedule(mut self) -> Result<(), (Error, Self)> {
        match self.slot_guard.0.take() {
            Some(slot_ref) => Arc::clone(&slot_ref.slot_owner).reschedule(slot_ref, self),
            None => Err((not_iterative(), self)),
        }
    }
}

/// The error of [`Execution::reschedule`] for a model without iterative sequences.
pub fn not_iterative() -> Error {
    Error::invalid(
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle \
         such a flag.",
    )
}

/// Holds a slot of a sequence model for a request that a backend works on; dropping it gives the slot back.
pub struct SlotGuard(Option<SlotRef>);

/// What is lent: a slot, to a request of one sequence.
pub struct SlotRef {
    /// Whose slot it is.
    pub slot_owner: Arc<dyn SlotOwner>,
    /// The instance the slot belongs to.
    pub instance: InstanceId,
    /// Number of the slot in the instance.
    pub slot: u32,
    /// How the request is scheduled.
    pub meta: Meta,
}

/// Whoever lends requests to backends.
pub trait SlotOwner: Send + Sync {
    /// The request in that slot has been given back. Must not block.
    fn returned(self: Arc<Self>, instance: InstanceId, slot: u32);

    /// The request in that slot wants to be executed again.
    ///
    /// # Errors
    /// It may not; the execution comes back with its lease.
    #[expect(clippy::result_large_err, reason = "the refused execution travels in the error")]
    fn reschedule(self: Arc<Self>, slot_ref: SlotRef, execution: Execution)
    -> Result<(), (Error, Execution)>;
}

impl SlotGuard {
    /// Lends a slot.
    pub fn new(slot_ref: SlotRef) -> Self {
        Self(Some(slot_ref))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(slot_ref) = self.0.take() {
            slot_ref.slot_owner.returned(slot_ref.instance, slot_ref.slot);
        }
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotGuard")
            .field(&self.0.as_ref().map(|slot_ref| (slot_ref.instance, slot_ref.slot)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use scheduling::Timestamp;

    use super::*;
    use crate::{Flow, ResponsePath, Timeline, response_channel};

    struct Nobody;
    impl ResponsePath for Nobody {}

    #[derive(Default)]
    struct Slots {
        returned: AtomicUsize,
        again: AtomicUsize,
    }
    impl SlotOwner for Slots {
        fn returned(self: Arc<Self>, _: InstanceId, _: u32) {
            self.returned.fetch_add(1, Relaxed);
        }
        fn reschedule(self: Arc<Self>, _: SlotRef, execution: Execution) -> Result<(), (Error, Execution)> {
            self.again.fetch_add(1, Relaxed);
            drop(execution);
            Ok(())
        }
    }

    fn execution() -> Execution {
        let (responder, stream) =
            response_channel(Timeline::new(Timestamp::from_nanos(1), 1), Arc::new(Nobody), Flow::unlimited());
        std::mem::forget(stream);
        Execution::new(Request::default(), responder)
    }

    #[test]
    fn a_slot_comes_back_once_whichever_way_it_comes() {
        let slots = Arc::new(Slots::default());
        let lend = || {
            SlotGuard::new(SlotRef { slot_owner: slots.clone(), instance: 0, slot: 3, meta: Meta::default() })
        };
        drop(execution().with_slot_guard(lend()));
        assert_eq!((slots.returned.load(Relaxed), slots.again.load(Relaxed)), (1, 0));
        assert!(execution().with_slot_guard(lend()).reschedule().is_ok());
        assert_eq!((slots.returned.load(Relaxed), slots.again.load(Relaxed)), (1, 1));
    }

    #[test]
    fn a_request_nobody_lent_cannot_be_rescheduled() {
        let (error, execution) = execution().reschedule().unwrap_err();
        assert!(
            error
                .message
                .starts_with("Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while")
        );
        execution.responder.finish();
    }
}
