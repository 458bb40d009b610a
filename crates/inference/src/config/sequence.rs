//! `sequence_batching`: how requests of sequences are scheduled, and what the model is told and remembers of each.
use bytes::Bytes;
use scheduling::SequenceBatching;

use crate::{DataType, Name, Shape};

/// The `sequence_batching` section.
#[derive(Debug, Clone)]
pub struct SequenceScheduling {
    /// What the scheduler needs of it.
    pub batching: SequenceBatching,
    /// Inputs that tell the model where in its sequence a row is; each kind at most once.
    pub controls: Vec<ControlInput>,
    /// What the model remembers between the requests of a sequence.
    pub states: Vec<StateSpec>,
}

/// One control of `control_input`: a tensor of one element per row.
#[derive(Debug, Clone)]
pub struct ControlInput {
    /// Name of the model's input.
    pub name: Name,
    /// What it tells.
    pub control: Control,
}

/// What a control input tells (`Control.Kind`), and by which values.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// Whether the row begins its sequence.
    Start(FalseTrue),
    /// Whether the row ends its sequence.
    End(FalseTrue),
    /// Whether the row is a request at all, and no padding.
    Ready(FalseTrue),
    /// The row's correlation id, in this datatype: a 32 or 64 bit integer, or BYTES.
    CorrelationId(DataType),
}

/// The values that stand for false and true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FalseTrue {
    /// `int32_false_true`
    Int32([i32; 2]),
    /// `fp32_false_true`
    Fp32([f32; 2]),
    /// `bool_false_true`
    Bool([bool; 2]),
}

/// One entry of `state`; input names and output names are each unique.
///
/// `use_same_buffer_for_input_output` has no trace here: a model that is told nothing about buffers sees the same values
/// with one as with two.
#[derive(Debug, Clone)]
pub struct StateSpec {
    /// The model's input that receives what was remembered.
    pub input_name: Name,
    /// The model's output that is remembered.
    pub output_name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension; -1 is any size.
    pub dims: Shape,
    /// What the first request of a sequence sees: dims, without the batch dimension and without -1, and where its
    /// content comes from. Without it zeros of `dims`, a -1 counting as 1.
    pub initial: Option<InitialState>,
}

/// `initial_state` of a state.
#[derive(Debug, Clone)]
pub struct InitialState {
    /// Without the batch dimension; no -1.
    pub dims: Shape,
    /// File below `initial_state/` of the model's directory; `None` is zeros.
    pub file: Option<String>,
    /// The file's content, once it was read; empty for zeros.
    pub data: Bytes,
}
