//! One request that a backend executes: its data, the state of its sequence, and how the backend releases it.
use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use scheduling::{InstanceId, Meta};

use crate::{Error, Name, Request, Responder, Tensor};

/// A request and its responder.
///
/// The executor has checked the request against the configuration: its inputs have the configured names, datatypes
/// and shapes. The batch dimension is first if the model has one, and configured reshapes are applied. The inputs
/// include the control inputs of sequence models. Dropping the execution releases the request: the next request of
/// its sequence may then run.
#[derive(Debug)]
pub struct Execution {
    /// The request. A padding row wants no output.
    pub request: Request,
    /// Sends the responses.
    pub responder: Responder,
    /// The state of the request's sequence; `None` for models without `state`.
    pub state: Option<SequenceState>,
    slot_guard: SlotGuard,
}

impl Execution {
    /// An execution without a sequence slot.
    pub fn new(request: Request, responder: Responder) -> Self {
        Self { request, responder, state: None, slot_guard: SlotGuard(None) }
    }

    /// The same execution, with a sequence slot.
    #[must_use]
    pub fn with_slot_guard(self, slot_guard: SlotGuard) -> Self {
        Self { slot_guard, ..self }
    }

    /// The same execution, with the state of its sequence.
    #[must_use]
    pub fn with_state(self, state: Option<SequenceState>) -> Self {
        Self { state, ..self }
    }

    /// Reschedules the request: the executor runs it again, together with requests that have arrived meanwhile
    /// (iterative sequences; `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`). Responses that were already sent stay valid.
    ///
    /// # Errors
    /// The model is not configured for this, or the sequence has ended. The error returns the execution, and the
    /// backend must still respond to it.
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

/// Holds a slot of a sequence model for a request that a backend executes. Dropping the guard releases the slot.
pub struct SlotGuard(Option<SlotRef>);

/// The slot of a guard, which one request of a sequence occupies.
pub struct SlotRef {
    /// The owner of the slot.
    pub slot_owner: Arc<dyn SlotOwner>,
    /// The instance of the slot.
    pub instance: InstanceId,
    /// Number of the slot in the instance.
    pub slot: u32,
    /// How the scheduler sees the request.
    pub meta: Meta,
}

/// The owner of sequence slots. It gets a slot back when a backend has released the request in it.
pub trait SlotOwner: Send + Sync {
    /// Reports that the backend has released the request in that slot. Must not block.
    fn returned(self: Arc<Self>, instance: InstanceId, slot: u32);

    /// Runs the request in that slot again.
    ///
    /// # Errors
    /// The request may not run again. The error returns the execution with its slot guard.
    #[expect(clippy::result_large_err, reason = "the refused execution travels in the error")]
    fn reschedule(self: Arc<Self>, slot_ref: SlotRef, execution: Execution)
    -> Result<(), (Error, Execution)>;
}

impl SlotGuard {
    /// Guards a slot.
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

/// The state of one sequence, which the model keeps between requests (`state` of a configuration). Clones share the
/// same state.
///
/// The requests of a sequence run one after the other, so one request at a time reads and writes the state. Tensors
/// are shared, not copied: an output becomes the next input without a copy.
#[derive(Debug, Clone)]
pub struct SequenceState {
    tensors: Arc<Mutex<Vec<StateTensor>>>,
}

/// One state: the input of the next request, and the output that replaces it.
#[derive(Debug, Clone)]
struct StateTensor {
    output: Name,
    input: Tensor,
}

impl SequenceState {
    /// The state of a new sequence: the output name and the first input of each state.
    pub fn new(states: impl IntoIterator<Item = (Name, Tensor)>) -> Self {
        let states = states.into_iter().map(|(output, input)| StateTensor { output, input }).collect();
        Self { tensors: Arc::new(Mutex::new(states)) }
    }

    /// The state inputs of the next execution, in the order of the configuration.
    pub fn inputs(&self) -> Vec<Tensor> {
        self.tensors.lock().iter().map(|state| state.input.clone()).collect()
    }

    /// Whether an output with that name is a state of the model.
    pub fn has_state(&self, output: &str) -> bool {
        self.tensors.lock().iter().any(|state| state.output == output)
    }

    /// Makes `value` the next input of the state that `output` writes. Datatype and shape are those of the value.
    ///
    /// # Errors
    /// INVALID_ARG if no state has this output.
    pub fn update(&self, output: &str, value: &Tensor) -> Result<(), Error> {
        let mut states = self.tensors.lock();
        let state = states
            .iter_mut()
            .find(|state| state.output == output)
            .ok_or_else(|| Error::invalid(format!("state '{output}' is not a valid state name.")))?;
        let name = state.input.name().clone();
        state.input = Tensor::new(name, value.datatype(), value.shape().into(), value.data().clone());
        Ok(())
    }

    /// An independent copy of the state, for rows whose results are discarded.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { tensors: Arc::new(Mutex::new(self.tensors.lock().clone())) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use scheduling::Timestamp;

    use super::*;
    use crate::{DataType, Flow, ResponsePath, Timeline, response_channel};

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

    #[test]
    fn an_output_becomes_the_next_input_without_being_copied() {
        let value =
            |name: &str, byte: u8| Tensor::new(name.into(), DataType::Uint8, [1][..].into(), vec![byte]);
        let state = SequenceState::new([("OUT".into(), value("IN", 0))]);
        let throwaway = state.copied();
        let next = value("OUT", 7);
        state.update("OUT", &next).unwrap();
        assert_eq!(state.inputs()[0].name(), &"IN");
        assert_eq!(state.inputs()[0].data().pieces()[0].as_ptr(), next.data().pieces()[0].as_ptr());
        assert_eq!(throwaway.inputs()[0].data().contiguous()[0], 0);
        assert_eq!(
            state.update("NOPE", &next).unwrap_err().message,
            "state 'NOPE' is not a valid state name."
        );
    }
}
