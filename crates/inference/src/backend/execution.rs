//! One request that a backend executes: its data, the state of its sequence, and how the backend releases it.
use std::{fmt, sync::Arc};

use scheduling::{InstanceId, SchedulingAttributes};
use vocabulary::{Error, ErrorCode, FailureReason};

use super::SequenceState;
use crate::{Request, RequestInputs, Responder, Response};

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

    /// Adds the states of its sequence to the inputs of the request, in place of those of an earlier run.
    pub fn load_states(&mut self) {
        if let (Some(state), RequestInputs::Tensors(inputs)) = (&self.state, &mut self.request.inputs) {
            for value in state.inputs() {
                inputs.retain(|input| input.name() != value.name());
                inputs.push(value);
            }
        }
    }

    /// Answers with the last response, as [`Responder::complete`]. First frees what the request holds: from the answer a
    /// client concludes that its memory and its share of budgets are free. The slot of a sequence is released afterwards,
    /// so that the answers of a sequence keep their order.
    pub fn complete(self, response: Response) {
        let (responder, _slot_guard) = self.into_answer();
        responder.complete(response);
    }

    /// As [`complete`](Self::complete), with an error.
    pub fn fail(self, error: Error) {
        let (responder, _slot_guard) = self.into_answer();
        responder.fail(error);
    }

    /// As [`fail`](Self::fail), because the client has cancelled the request.
    pub fn cancel(self) {
        let error = Error::new(ErrorCode::Cancelled, "request was cancelled");
        self.fail(error.because(FailureReason::Cancelled));
    }

    /// As [`complete`](Self::complete), without another response.
    pub fn finish(self) {
        let (responder, _slot_guard) = self.into_answer();
        responder.finish();
    }

    /// As [`complete`](Self::complete), for a decoupled model: the end follows the last response by itself.
    pub fn complete_decoupled(self, response: Response) {
        let (responder, _slot_guard) = self.into_answer();
        responder.send(response);
        responder.finish();
    }

    /// What is left when the request and its state are dropped.
    fn into_answer(self) -> (Responder, SlotGuard) {
        let Self { request, responder, state, slot_guard } = self;
        drop((request, state));
        (responder, slot_guard)
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
    pub attributes: SchedulingAttributes,
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::{Context, Wake, Waker},
    };

    use scheduling::Timestamp;
    use vocabulary::{DataType, Tensor};

    use super::*;
    use crate::{Timeline, Unobserved, UnreadPolicy, response_channel};

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
        let (responder, stream) = response_channel(
            Timeline::new(Timestamp::from_nanos(1), 1),
            Arc::new(Unobserved),
            UnreadPolicy::unlimited(),
        );
        std::mem::forget(stream);
        Execution::new(Request::default(), responder)
    }

    #[test]
    fn states_replace_those_of_an_earlier_run() {
        let value =
            |name: &str, byte: u8| Tensor::new(name.into(), DataType::Uint8, [1][..].into(), vec![byte]);
        let state = SequenceState::new([("NEXT".into(), value("STATE", 1))]);
        let mut execution = execution().with_state(Some(state.clone()));
        execution.request.inputs = RequestInputs::Tensors(vec![value("IN", 0)]);
        execution.load_states();
        state.update("NEXT", &value("NEXT", 2)).unwrap();
        execution.load_states();
        let inputs = execution.request.tensors().iter();
        let seen: Vec<_> =
            inputs.map(|input| (input.name().as_str(), input.host().unwrap().contiguous()[0])).collect();
        assert_eq!(seen, [("IN", 0), ("STATE", 2)]);
        execution.responder.finish();
    }

    #[test]
    fn a_slot_is_returned_exactly_once() {
        let slots = Arc::new(Slots::default());
        let lend = || {
            SlotGuard::new(SlotRef {
                slot_owner: slots.clone(),
                instance: 0,
                slot: 3,
                attributes: SchedulingAttributes::default(),
            })
        };
        drop(execution().with_slot_guard(lend()));
        assert_eq!((slots.returned.load(Relaxed), slots.again.load(Relaxed)), (1, 0));
        assert!(execution().with_slot_guard(lend()).reschedule().is_ok());
        assert_eq!((slots.returned.load(Relaxed), slots.again.load(Relaxed)), (1, 1));
    }

    /// The memory of a request, and whether it was free when the client was woken.
    struct Watched(Arc<AtomicUsize>);
    impl AsRef<[u8]> for Watched {
        fn as_ref(&self) -> &[u8] {
            &[0; 4]
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct Waking {
        freed: Arc<AtomicUsize>,
        seen: AtomicUsize,
    }
    impl Wake for Waking {
        fn wake(self: Arc<Self>) {
            self.seen.store(self.freed.load(Relaxed), Relaxed);
        }
    }

    #[test]
    fn the_memory_of_a_request_is_free_when_its_client_has_the_answer() {
        let endings: [fn(Execution); 4] = [
            |execution| execution.complete(Response::default()),
            |execution| execution.complete_decoupled(Response::default()),
            |execution| execution.fail(Error::internal("no")),
            Execution::finish,
        ];
        for end in endings {
            let freed = Arc::<AtomicUsize>::default();
            let bytes = bytes::Bytes::from_owner(Watched(freed.clone()));
            let input = Tensor::new("X".into(), DataType::Fp32, [1][..].into(), bytes);
            let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
            let at = Timestamp::from_nanos(1);
            let (responder, mut stream) =
                response_channel(Timeline::new(at, 1), Arc::new(Unobserved), UnreadPolicy::unlimited());
            let waking = Arc::new(Waking { freed, seen: AtomicUsize::new(0) });
            let waker = Waker::from(waking.clone());
            assert!(stream.poll_item(&mut Context::from_waker(&waker)).is_pending());
            end(Execution::new(request, responder));
            assert_eq!(waking.seen.load(Relaxed), 1, "the client was woken before the memory was free");
        }
    }

    #[test]
    fn a_request_without_a_slot_cannot_be_rescheduled() {
        let (error, execution) = execution().reschedule().unwrap_err();
        assert!(
            error
                .message
                .starts_with("Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while")
        );
        execution.responder.finish();
    }
}
