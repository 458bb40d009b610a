//! The tensors that the server keeps for one sequence between its requests (implicit state).
use std::sync::Arc;

use config::{ModelConfig, SequenceScheduling, StateSpec};
use vocabulary::{Error, ForeignMemory, Name, Shape, Tensor, TensorMemory, require_memory};

use crate::lock::Mutex;

/// The implicit state of one sequence (`state` of a configuration). Clones share the memory.
///
/// The requests of a sequence run one after the other, so there is one reader and writer at a time. Tensors are shared
/// and not copied: an output becomes the next input as it is.
#[derive(Debug, Clone)]
pub struct SequenceState {
    tensors: Arc<Mutex<Vec<StateTensor>>>,
}

/// One state: the input of the next request, and the output that replaces it.
#[derive(Debug, Clone)]
struct StateTensor {
    output: Name,
    input: Tensor,
    /// Whether a library that asks for the input gets foreign memory, which it also writes.
    in_place: bool,
}

impl StateTensor {
    /// The foreign memory that a library writes in place, if a library has asked for it.
    fn in_place_memory(&self) -> Option<&ForeignMemory> {
        match self.input.memory() {
            TensorMemory::Foreign(memory) => Some(memory),
            TensorMemory::Host(_) | TensorMemory::Device(_) => None,
        }
    }
}

impl SequenceState {
    /// The values of the states that the first request of a sequence receives, by the names of the outputs. Leaves those
    /// states out that have a [problem](StateSpec::problem). All together may take `bound` bytes.
    ///
    /// # Errors
    /// INVALID_ARG beyond the bound; INTERNAL if the process does not get the memory.
    pub fn first_values(
        config: &ModelConfig,
        sequence: &SequenceScheduling,
        bound: usize,
    ) -> Result<Vec<(Name, Tensor)>, Error> {
        let batch: Shape = config.max_batch_size.map(|_| 1).into_iter().collect();
        let states = sequence.states.iter().filter(|state| state.problem().is_none());
        let bytes = states.clone().map(|state| Tensor::zeros_size(state.datatype, &first_dims(state))).sum();
        let what = format!("the implicit state of a sequence of model '{}'", config.name);
        require_memory(&what, bytes, bound)?;
        Ok(states.map(|state| (state.output_name.clone(), first_input(state, &batch))).collect())
    }

    /// The state of a sequence that begins: for each state its output name and its first input.
    pub fn new(states: impl IntoIterator<Item = (Name, Tensor)>) -> Self {
        let tensor = |(output, input)| StateTensor { output, input, in_place: false };
        Self { tensors: Arc::new(Mutex::new(states.into_iter().map(tensor).collect())) }
    }

    /// The same state. Libraries read and write the states of these outputs in place
    /// (`use_same_buffer_for_input_output`).
    #[must_use]
    pub fn in_place(self, outputs: &[Name]) -> Self {
        for state in self.tensors.lock().iter_mut() {
            state.in_place = outputs.contains(&state.output);
        }
        self
    }

    /// The number of states.
    pub fn count(&self) -> usize {
        self.tensors.lock().len()
    }

    /// The state inputs of the next execution, in the order of the configuration.
    pub fn inputs(&self) -> Vec<Tensor> {
        self.tensors.lock().iter().map(|state| state.input.clone()).collect()
    }

    /// The state inputs for a library that writes some states in place. The first call of a sequence copies these
    /// states to foreign memory. They stay in that memory. A state in memory of a device stays where it is.
    pub fn library_inputs(&self) -> Vec<Tensor> {
        let input = |state: &mut StateTensor| {
            if state.in_place
                && let TensorMemory::Host(data) = state.input.memory()
            {
                let memory = ForeignMemory::copied_from(data);
                state.input = state.input.clone().with_memory(memory);
            }
            state.input.clone()
        };
        self.tensors.lock().iter_mut().map(input).collect()
    }

    /// Whether the model remembers an output of that name.
    pub fn has_state(&self, output: &str) -> bool {
        self.tensors.lock().iter().any(|state| state.output == output)
    }

    /// The memory that input and output of a state share, if a library writes the state in place.
    pub fn in_place_memory(&self, output: &str) -> Option<ForeignMemory> {
        self.tensors.lock().iter().find(|state| state.output == output)?.in_place_memory().cloned()
    }

    /// Makes `value` the next input of the state that is written by `output`. Datatype and shape follow the value. The
    /// memory is shared and not copied.
    ///
    /// # Errors
    /// INVALID_ARG if there is no such state.
    pub fn update(&self, output: &str, value: &Tensor) -> Result<(), Error> {
        let mut states = self.tensors.lock();
        let state = states
            .iter_mut()
            .find(|state| state.output == output)
            .ok_or_else(|| Error::invalid(format!("state '{output}' is not a valid state name.")))?;
        let name = state.input.name().clone();
        state.input = Tensor::new(name, value.datatype(), value.shape().into(), value.memory().clone());
        Ok(())
    }

    /// A separate state with the same content, for rows whose results are not kept.
    ///
    /// # Errors
    /// UNSUPPORTED if the host cannot read a state.
    pub fn copied(&self) -> Result<Self, Error> {
        let mut tensors = self.tensors.lock().clone();
        for state in &mut tensors {
            state.input.bring_to_host()?;
            state.in_place = false;
        }
        Ok(Self { tensors: Arc::new(Mutex::new(tensors)) })
    }
}

/// The value of a state that the first request of a sequence receives.
fn first_input(state: &StateSpec, batch: &[i64]) -> Tensor {
    let shape: Shape = batch.iter().copied().chain(first_dims(state)).collect();
    let given = state.initial.as_ref().map(|initial| &initial.data).filter(|data| !data.is_empty());
    let (name, datatype) = (state.input_name.clone(), state.datatype);
    match given {
        Some(data) => Tensor::new(name, datatype, shape, data.clone()),
        None => Tensor::zeros(name, datatype, shape),
    }
}

/// The dims of that value, without the batch dimension.
fn first_dims(state: &StateSpec) -> Shape {
    match &state.initial {
        Some(initial) => initial.dims.clone(),
        None => state.dims.iter().map(|&dim| dim.max(1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::DataType;

    use super::*;

    fn value(name: &str, byte: u8) -> Tensor {
        Tensor::new(name.into(), DataType::Uint8, [1][..].into(), vec![byte])
    }

    fn byte(state: &SequenceState) -> u8 {
        state.inputs()[0].host().unwrap().contiguous()[0]
    }

    #[test]
    fn an_output_becomes_the_next_input_without_being_copied() {
        let state = SequenceState::new([("OUT".into(), value("IN", 0))]);
        let throwaway = state.copied().unwrap();
        let next = value("OUT", 7);
        state.update("OUT", &next).unwrap();
        assert_eq!(state.inputs()[0].name(), &"IN");
        let address = |tensor: &Tensor| tensor.host().unwrap().pieces()[0].as_ptr();
        assert_eq!(address(&state.inputs()[0]), address(&next));
        assert_eq!(byte(&throwaway), 0);
        assert_eq!(
            state.update("NOPE", &next).unwrap_err().message,
            "state 'NOPE' is not a valid state name."
        );
    }

    #[test]
    fn a_state_in_place_keeps_its_memory_from_request_to_request() {
        let state = SequenceState::new([("OUT".into(), value("IN", 7))]).in_place(&["OUT".into()]);
        assert!(state.in_place_memory("OUT").is_none(), "no library has asked for it");
        state.library_inputs();
        let first = state.in_place_memory("OUT").unwrap();
        assert_eq!((first.byte_size(), byte(&state)), (1, 7));
        let written = Tensor::new("OUT".into(), DataType::Int8, [1, 1][..].into(), first.clone());
        state.update("OUT", &written).unwrap();
        let second = state.library_inputs().remove(0);
        assert_eq!((second.datatype(), second.shape()), (DataType::Int8, &[1, 1][..]));
        assert_eq!(state.in_place_memory("OUT").unwrap().address(), first.address());
        let copy = state.copied().unwrap();
        assert_eq!(byte(&copy), 7);
        copy.library_inputs();
        assert!(copy.in_place_memory("OUT").is_none(), "no library writes a copy");
    }

    #[test]
    fn a_state_that_is_not_in_place_stays_in_host_memory() {
        let state = SequenceState::new([("OUT".into(), value("IN", 7))]).in_place(&["OTHER".into()]);
        let input = state.library_inputs().remove(0);
        assert!(matches!(input.memory(), TensorMemory::Host(_)));
        assert_eq!(input.host().unwrap().contiguous()[..], [7]);
    }
}
