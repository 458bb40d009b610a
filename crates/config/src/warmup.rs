//! `model_warmup`: the batches that an instance runs before it may serve requests.
use std::num::NonZeroU32;

use vocabulary::{DataType, Name, Shape};

/// One entry of `model_warmup`: sample requests that form one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warmup {
    /// For logs and errors; may be empty.
    pub name: Name,
    /// Requests of one row in the batch. The maximum is the number of rows that a batch may have, or 1 for a model
    /// without a batch dimension. 0 skips the sample.
    pub batch_size: u32,
    /// How often the batch runs.
    pub count: NonZeroU32,
    /// The inputs of each request, by ascending name; empty for a sample that is skipped. A name that is not an input
    /// of the model may be the name of a control or a state.
    pub inputs: Vec<WarmupInput>,
}

/// One input of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmupInput {
    /// Name of the input.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension and without -1. The element count does not overflow.
    pub dims: Shape,
    /// The source of the elements.
    pub data: WarmupData,
}

/// The elements of an input of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmupData {
    /// Zeros; empty strings for BYTES.
    Zero,
    /// Random bytes. Never for BYTES, whose elements begin with their lengths.
    Random,
    /// File below `warmup/` of the model's directory, row-major. It has at least as many bytes as the elements need.
    /// For BYTES all of its bytes count.
    File(String),
}
