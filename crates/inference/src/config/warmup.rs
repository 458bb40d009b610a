//! `model_warmup`: what an instance runs before it may serve.
use std::num::NonZeroU32;

use crate::{DataType, Name, Shape};

/// One entry of `model_warmup`: a sample of requests that make one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warmup {
    /// For logs and errors; may be empty.
    pub name: Name,
    /// Requests of one row in the batch: at most as many as a batch may have rows, 1 for a model without a batch
    /// dimension. 0 skips the sample.
    pub batch_size: u32,
    /// How often the batch runs.
    pub count: NonZeroU32,
    /// What each of the requests holds, by ascending name; empty for a sample that is skipped. A name that is no input
    /// of the model may be one of a control or of a state.
    pub inputs: Vec<WarmupInput>,
}

/// One input of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmupInput {
    /// Name of the input.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension; no -1, and few enough elements to be counted.
    pub dims: Shape,
    /// Where the elements come from.
    pub data: WarmupData,
}

/// The elements of an input of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmupData {
    /// Zeros; empty strings for BYTES.
    Zero,
    /// Whatever bytes chance gives. Never for BYTES, whose elements begin with their lengths.
    Random,
    /// File below `warmup/` of the model's directory, row-major: at least as many bytes as the elements have, and for
    /// BYTES all of its bytes.
    File(String),
}
