//! What the executor adds to the requests of sequence models: control inputs, and the implicit state of each slot, which
//! is freed when its sequence is over.
use std::sync::Arc;

use bytes::Bytes;
use config::{ControlInput, FlagValues, ModelConfig, Scheduling, SequenceControl, StateSpec};
use host::{configurable_bytes, now};
use inference::{
    EntryId, OutputSelection, Request, RequestInputs, ResponseStream, Timeline, Unobserved, UnreadPolicy,
    backend::{Execution, SequenceState, SlotGuard, SlotRef},
    lock::Mutex,
    response_channel,
};
use scheduling::{InstanceId, SequenceId, SequencePosition, VacatedSlot};
use vocabulary::{DataType, Error, Name, Shape, Tensor};

use crate::instance_table::InstanceTable;

/// What the executor adds to the requests of a sequence model.
pub(super) struct Sequences {
    controls: Vec<ControlInput>,
    states: Vec<(Name, Tensor)>,
    /// Outputs whose states libraries write in place.
    in_place: Vec<Name>,
    /// Why some states are not remembered, told whenever a sequence begins.
    problems: Vec<String>,
    /// `[1]`, or `[1, 1]` for models with a batch dimension.
    control_shape: Shape,
    /// Each request is a whole sequence.
    is_iterative: bool,
    /// The state of the sequence in each slot, by instance and slot. Its lock is taken by the thread that runs the
    /// instance, and by threads that free the states of sequences which are over.
    states_by_slot: InstanceTable<InstanceStates>,
}

/// The state in each slot of an instance.
type InstanceStates = Mutex<Vec<Option<StoredState>>>;

/// The state that a slot keeps until the next request of its sequence.
struct StoredState {
    /// A thread that frees the state of an earlier sequence of the slot must not free this one.
    sequence_number: u64,
    state: SequenceState,
}

impl Sequences {
    /// `None` for a configuration without sequence batching.
    ///
    /// # Errors
    /// The first values of the states take more memory than there is.
    pub(super) fn new(config: &ModelConfig, instances: usize) -> Result<Option<Self>, Error> {
        let Scheduling::Sequence(sequence) = &config.scheduling else { return Ok(None) };
        let states = SequenceState::first_values(config, sequence, configurable_bytes())?;
        let batch = config.max_batch_size.map(|_| 1);
        let is_possible = |state: &&StateSpec| state.problem().is_none();
        let in_place = sequence.states.iter().filter(is_possible).filter(|state| state.uses_same_buffer);
        Ok(Some(Self {
            controls: sequence.controls.clone(),
            states,
            in_place: in_place.map(|state| state.output_name.clone()).collect(),
            problems: sequence.states.iter().filter_map(StateSpec::problem).collect(),
            is_iterative: sequence.batching.iterative,
            control_shape: batch.into_iter().chain([1]).collect(),
            states_by_slot: InstanceTable::new(instances),
        }))
    }

    /// An instance has been added.
    pub(super) fn add_instance(&self, instance: InstanceId) {
        self.states_by_slot.renew(instance);
    }

    /// Prepares a request for its slot: adds its control inputs and the state of its sequence.
    pub(super) fn prepare(&self, id: EntryId, slot_ref: SlotRef, execution: Box<Execution>) -> Execution {
        let mut execution = *execution;
        let step = &slot_ref.attributes.sequence;
        self.set_controls(&mut execution.request, Some(step), true);
        // An iterative model learns the id that the scheduler generated, and that only the first execution is the start.
        execution.request.sequence.clone_from(step);
        // No later request needs the state of a sequence that ends: it is freed with this execution. A request that runs
        // again brings its state with it.
        let is_last = step.end || self.is_iterative;
        let state = execution.state.take();
        let state = state.or_else(|| self.memory(&slot_ref, id.sequence_number(), is_last));
        execution.with_state(state).with_slot_guard(SlotGuard::new(slot_ref))
    }

    /// A padding row, which keeps later slots in their place. It requests no output and works on a copy of the slot's
    /// state.
    pub(super) fn pad(
        &self,
        instance: InstanceId,
        slot: u32,
        inputs: &[Tensor],
    ) -> (Execution, ResponseStream) {
        let inputs = RequestInputs::Tensors(inputs.to_vec());
        let mut request = Request { inputs, outputs: OutputSelection::Nothing, ..Request::default() };
        self.set_controls(&mut request, None, false);
        let (responder, stream) =
            response_channel(Timeline::new(now(), 1), Arc::new(Unobserved), UnreadPolicy::unlimited());
        let memory = self.states_by_slot.with(instance, |states| {
            let states = states.lock();
            states.get(slot as usize)?.as_ref().map(|stored| stored.state.clone())
        });
        let state = match memory {
            // No client gets the result of a padding row, so a state that cannot be read is no fault.
            Some(memory) => memory.copied().ok().or_else(|| self.fresh()),
            None => self.fresh(),
        };
        (Execution::new(request, responder).with_state(state), stream)
    }

    /// The state of the sequence in a slot, which is fresh if the sequence begins. The slot forgets it if the request is
    /// the last one.
    fn memory(&self, slot_ref: &SlotRef, sequence_number: u64, is_last: bool) -> Option<SequenceState> {
        if self.states.is_empty() && self.problems.is_empty() {
            return None;
        }
        let slot = slot_ref.slot as usize;
        let take = |states: &InstanceStates| states.lock().get_mut(slot)?.take();
        // Memory that a sequence has left here is freed outside of the lock.
        let stored = self.states_by_slot.with(slot_ref.instance, take).map(|stored| stored.state);
        let state = stored.filter(|_| !slot_ref.attributes.sequence.start).or_else(|| {
            for problem in &self.problems {
                log::error!("Failed to initialize sequence state: {problem}");
            }
            self.fresh()
        })?;
        if !is_last {
            let stored = StoredState { sequence_number, state: state.clone() };
            self.states_by_slot.with(slot_ref.instance, |states| {
                let mut states = states.lock();
                let slots = states.len().max(slot + 1);
                states.resize_with(slots, || None);
                states[slot] = Some(stored);
            });
        }
        Some(state)
    }

    /// Frees the states of sequences that are over. What later sequences have in these slots stays.
    pub(super) fn free_states(&self, vacated: &[VacatedSlot]) {
        for vacated in vacated {
            let take = |states: &InstanceStates| {
                let mut states = states.lock();
                let place = states.get_mut(vacated.slot as usize)?;
                place.take_if(|stored| stored.sequence_number <= vacated.sequence_number)
            };
            // Dropped outside of the lock.
            drop(self.states_by_slot.with(vacated.instance, take));
        }
    }

    /// Frees all states: no request of a sequence runs any more.
    pub(super) fn free_all_states(&self) {
        self.states_by_slot.all().iter().for_each(|states| drop(std::mem::take(&mut *states.lock())));
    }

    /// The state of a sequence that begins.
    pub(super) fn fresh(&self) -> Option<SequenceState> {
        let has_states = !self.states.is_empty() || !self.problems.is_empty();
        has_states.then(|| SequenceState::new(self.states.iter().cloned()).in_place(&self.in_place))
    }

    /// Sets the control inputs. They replace inputs of the same name that the client sent.
    fn set_controls(&self, request: &mut Request, step: Option<&SequencePosition>, ready: bool) {
        let RequestInputs::Tensors(inputs) = &mut request.inputs else { return };
        for ControlInput { name, control } in &self.controls {
            let (datatype, bytes) = match control {
                SequenceControl::Start(values) => flag(values, step.is_some_and(|step| step.start)),
                SequenceControl::End(values) => flag(values, step.is_some_and(|step| step.end)),
                SequenceControl::Ready(values) => flag(values, ready),
                SequenceControl::CorrelationId(datatype) => (*datatype, correlation_id(*datatype, step)),
            };
            let tensor = Tensor::new(name.clone(), datatype, self.control_shape.clone(), bytes);
            match inputs.iter_mut().find(|input| input.name() == name) {
                Some(input) => *input = tensor,
                None => inputs.push(tensor),
            }
        }
    }
}

fn flag(values: &FlagValues, is_true: bool) -> (DataType, Bytes) {
    let index = usize::from(is_true);
    match values {
        FlagValues::Int32(pair) => (DataType::Int32, Bytes::copy_from_slice(&pair[index].to_le_bytes())),
        FlagValues::Fp32(pair) => (DataType::Fp32, Bytes::copy_from_slice(&pair[index].to_le_bytes())),
        FlagValues::Bool(pair) => (DataType::Bool, Bytes::copy_from_slice(&[u8::from(pair[index])])),
    }
}

/// The low bytes of a number, or a string after its length. Padding rows have the number 0 or the empty string.
fn correlation_id(datatype: DataType, step: Option<&SequencePosition>) -> Bytes {
    let id = step.and_then(|step| step.id.as_ref());
    let number = match id {
        Some(SequenceId::Number(number)) => number.get(),
        Some(SequenceId::ServerGenerated(number)) => *number,
        Some(SequenceId::Text(_)) | None => 0,
    };
    let Some(size) = datatype.byte_size() else {
        let text = match id {
            Some(id @ (SequenceId::Text(_) | SequenceId::ServerGenerated(_))) => id.to_string(),
            Some(SequenceId::Number(_)) | None => String::new(),
        };
        // The protocols limit ids far below 4 GiB.
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        return [&len.to_le_bytes()[..], text.as_bytes()].concat().into();
    };
    Bytes::copy_from_slice(&number.to_le_bytes()[..size])
}
