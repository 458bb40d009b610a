//! A step of an ensemble, and what connects it with others.

/// A tensor of an ensemble, as a number below [`EnsembleGraph::tensors`](super::EnsembleGraph::tensors).
pub type TensorIndex = usize;

/// A step of an ensemble, as a position in [`EnsembleGraph::steps`](super::EnsembleGraph::steps).
pub type StepIndex = usize;

/// A step of an ensemble: a model, and the tensors that it uses and produces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphStep {
    /// The tensors that the step uses. A tensor can occur several times.
    pub inputs: Vec<StepInput>,
    /// The tensors that the step produces.
    pub outputs: Vec<TensorIndex>,
    /// Whether the model of the step sends any number of responses, or none, for a request.
    pub is_decoupled: bool,
}

/// An input of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInput {
    /// The tensor that the step uses.
    pub tensor: TensorIndex,
    /// Whether the model of the step accepts a request without this input.
    pub is_optional: bool,
}
