//! What a model remembers of one sequence between its requests.
use std::sync::Arc;

use parking_lot::Mutex;

use super::StateBuffer;
use crate::{DataType, Error, Name, Tensor};

/// What a model remembers of one sequence between its requests (`state` of a configuration). Clones are the same memory.
///
/// The requests of a sequence run one after the other, so there is one reader and writer at a time. Tensors are shared,
/// not copied: an output becomes the next input as it is.
#[derive(Debug, Clone)]
pub struct SequenceState {
    tensors: Arc<Mutex<Vec<StateTensor>>>,
}

/// One state: what the next request sees, and by which output it is replaced.
#[derive(Debug, Clone)]
struct StateTensor {
    output: Name,
    /// Without its bytes if there is a buffer, which then has them.
    input: Tensor,
    /// Whether a library that asks for it gets one buffer for input and output.
    in_place: bool,
    /// That buffer, once a library has asked for it.
    buffer: Option<StateBuffer>,
}

/// The input of a state as a library sees it.
#[derive(Debug)]
pub struct StateInput {
    /// What it is, with its bytes unless there is a buffer.
    pub tensor: Tensor,
    /// Where the bytes lie that the library also writes, for a state with one buffer for input and output.
    pub buffer: Option<StateBuffer>,
}

impl StateTensor {
    /// The input with its bytes.
    fn value(&self) -> Tensor {
        self.buffer.as_ref().map_or_else(|| self.input.clone(), |buffer| like(&self.input, buffer.content()))
    }
}

/// Other bytes under the same name, datatype and shape.
fn like(tensor: &Tensor, bytes: Vec<u8>) -> Tensor {
    Tensor::new(tensor.name().clone(), tensor.datatype(), tensor.shape().into(), bytes)
}

impl SequenceState {
    /// The memory of a sequence that begins: for each state its output name and its first input.
    pub fn new(states: impl IntoIterator<Item = (Name, Tensor)>) -> Self {
        let tensor = |(output, input)| StateTensor { output, input, in_place: false, buffer: None };
        Self { tensors: Arc::new(Mutex::new(states.into_iter().map(tensor).collect())) }
    }

    /// The same memory; libraries read and write the states of these outputs in place
    /// (`use_same_buffer_for_input_output`).
    #[must_use]
    pub fn in_place(self, outputs: &[Name]) -> Self {
        for state in self.tensors.lock().iter_mut() {
            state.in_place = outputs.contains(&state.output);
        }
        self
    }

    /// How many states there are.
    pub fn count(&self) -> usize {
        self.tensors.lock().len()
    }

    /// The state inputs of the next execution, in the order of the configuration.
    pub fn inputs(&self) -> Vec<Tensor> {
        self.tensors.lock().iter().map(StateTensor::value).collect()
    }

    /// The same for a library that may write some states in place. Their bytes are copied for the first execution of a
    /// sequence, and stay where they are then.
    pub fn library_inputs(&self) -> Vec<StateInput> {
        let input = |state: &mut StateTensor| {
            if state.in_place && state.buffer.is_none() {
                state.buffer = Some(StateBuffer::copied_from(state.input.data()));
                state.input = like(&state.input, Vec::new());
            }
            StateInput { tensor: state.input.clone(), buffer: state.buffer.clone() }
        };
        self.tensors.lock().iter_mut().map(input).collect()
    }

    /// Whether the model remembers an output of that name.
    pub fn has_state(&self, output: &str) -> bool {
        self.tensors.lock().iter().any(|state| state.output == output)
    }

    /// The buffer that input and output of a state share; `None` if they do not.
    pub fn buffer(&self, output: &str) -> Option<StateBuffer> {
        self.tensors.lock().iter().find(|state| state.output == output)?.buffer.clone()
    }

    /// Makes `value` the next input of the state that is written by `output`. Datatype and shape follow the value.
    ///
    /// # Errors
    /// INVALID_ARG if there is no such state.
    pub fn update(&self, output: &str, value: &Tensor) -> Result<(), Error> {
        self.replace(output, value, None)
    }

    /// Makes a buffer that was written in place the next input of a state, without copying it.
    ///
    /// # Errors
    /// INVALID_ARG if there is no such state.
    pub fn update_in_place(
        &self,
        output: &Name,
        datatype: DataType,
        shape: &[i64],
        buffer: StateBuffer,
    ) -> Result<(), Error> {
        self.replace(output, &Tensor::new(output.clone(), datatype, shape.into(), Vec::new()), Some(buffer))
    }

    fn replace(&self, output: &str, value: &Tensor, buffer: Option<StateBuffer>) -> Result<(), Error> {
        let mut states = self.tensors.lock();
        let state = states
            .iter_mut()
            .find(|state| state.output == output)
            .ok_or_else(|| Error::invalid(format!("state '{output}' is not a valid state name.")))?;
        let name = state.input.name().clone();
        state.input = Tensor::new(name, value.datatype(), value.shape().into(), value.data().clone());
        state.buffer = buffer;
        Ok(())
    }

    /// A memory of its own with the same content, for rows whose results nobody keeps.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self::new(self.tensors.lock().iter().map(|state| (state.output.clone(), state.value())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, byte: u8) -> Tensor {
        Tensor::new(name.into(), DataType::Uint8, [1][..].into(), vec![byte])
    }

    fn byte(state: &SequenceState) -> u8 {
        state.inputs()[0].data().contiguous()[0]
    }

    #[test]
    fn an_output_becomes_the_next_input_without_being_copied() {
        let state = SequenceState::new([("OUT".into(), value("IN", 0))]);
        let throwaway = state.copied();
        let next = value("OUT", 7);
        state.update("OUT", &next).unwrap();
        assert_eq!(state.inputs()[0].name(), &"IN");
        assert_eq!(state.inputs()[0].data().pieces()[0].as_ptr(), next.data().pieces()[0].as_ptr());
        assert_eq!(byte(&throwaway), 0);
        assert_eq!(
            state.update("NOPE", &next).unwrap_err().message,
            "state 'NOPE' is not a valid state name."
        );
    }

    #[test]
    fn a_state_in_place_keeps_its_memory_from_request_to_request() {
        let state = SequenceState::new([("OUT".into(), value("IN", 7))]).in_place(&["OUT".into()]);
        assert!(state.buffer("OUT").is_none(), "nobody has asked for it");
        let first = state.library_inputs().remove(0).buffer.unwrap();
        assert_eq!((first.byte_size(), byte(&state)), (1, 7));
        state.update_in_place(&"OUT".into(), DataType::Int8, &[1, 1], first.clone()).unwrap();
        let second = state.library_inputs().remove(0);
        assert_eq!((second.tensor.datatype(), second.tensor.shape()), (DataType::Int8, &[1, 1][..]));
        assert_eq!(second.buffer.unwrap().as_ptr(), first.as_ptr());
        assert_eq!(byte(&state.copied()), 7);
        assert!(state.copied().library_inputs()[0].buffer.is_none(), "a copy is written by nobody");
    }

    #[test]
    fn a_state_that_is_not_in_place_has_no_buffer() {
        let state = SequenceState::new([("OUT".into(), value("IN", 7))]).in_place(&["OTHER".into()]);
        let input = state.library_inputs().remove(0);
        assert!(input.buffer.is_none());
        assert_eq!(input.tensor.data().contiguous()[..], [7]);
    }
}
