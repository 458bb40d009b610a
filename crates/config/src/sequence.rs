//! `sequence_batching`: how requests of sequences are scheduled, their control inputs and their state.
use bytes::Bytes;
use scheduling::SequenceBatching;
use vocabulary::{DataType, Name, Shape};

/// The `sequence_batching` section.
#[derive(Debug, Clone)]
pub struct SequenceScheduling {
    /// The settings for the scheduler.
    pub batching: SequenceBatching,
    /// Inputs that give the model the position of a row in its sequence; each kind at most once.
    pub controls: Vec<ControlInput>,
    /// The state that the model keeps between the requests of a sequence.
    pub states: Vec<StateSpec>,
}

/// One control of `control_input`: a tensor with one element for each row.
#[derive(Debug, Clone)]
pub struct ControlInput {
    /// Name of the model's input.
    pub name: Name,
    /// The meaning of the input.
    pub control: SequenceControl,
}

/// The meaning of a control input (`Control.Kind`), and its values.
#[derive(Debug, Clone, PartialEq)]
pub enum SequenceControl {
    /// Whether the row starts its sequence.
    Start(FlagValues),
    /// Whether the row ends its sequence.
    End(FlagValues),
    /// Whether the row is a request and not padding.
    Ready(FlagValues),
    /// The row's correlation id, in this datatype: a 32 or 64 bit integer, or BYTES.
    CorrelationId(DataType),
}

/// The values that stand for false and true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlagValues {
    /// `int32_false_true`
    Int32([i32; 2]),
    /// `fp32_false_true`
    Fp32([f32; 2]),
    /// `bool_false_true`
    Bool([bool; 2]),
}

/// One entry of `state`; input names and output names are each unique.
#[derive(Debug, Clone)]
pub struct StateSpec {
    /// The model's input that receives the state.
    pub input_name: Name,
    /// The model's output that becomes the state.
    pub output_name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension; -1 is any size.
    pub dims: Shape,
    /// The input of the first request of a sequence: its dims, without the batch dimension and without -1, and the
    /// source of its content. `None` means zeros of `dims`, where -1 counts as 1.
    pub initial: Option<InitialState>,
    /// `use_same_buffer_for_input_output`: a library reads and writes the state in one buffer. A model that is told
    /// nothing about buffers sees the same values with one as with two.
    pub uses_same_buffer: bool,
    /// `use_growable_memory`: the buffer keeps its address when it grows, which needs a GPU.
    pub uses_growable_memory: bool,
}

impl StateSpec {
    /// Why the model cannot remember this state, if so. As Triton: sequence_state.cc, Initialize, which tells so when a
    /// sequence begins and not when the model is loaded. No instance runs on a GPU here.
    pub fn problem(&self) -> Option<String> {
        let name = &self.input_name;
        match (self.uses_growable_memory, self.uses_same_buffer) {
            (false, _) => None,
            (true, false) => Some(format!(
                "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name \
                 '{name}'."
            )),
            (true, true) => Some(format!(
                "'use_growable_memory' can only work with KIND_GPU model instances right now. Please either change the \
                 instance type to KIND_GPU or set 'use_growable_memory' to false for state input '{name}'."
            )),
        }
    }
}

/// `initial_state` of a state.
#[derive(Debug, Clone)]
pub struct InitialState {
    /// Without the batch dimension; no -1.
    pub dims: Shape,
    /// File below `initial_state/` of the model's directory; `None` means zeros.
    pub file: Option<String>,
    /// The file's content, after it was read; empty for zeros.
    pub data: Bytes,
}
