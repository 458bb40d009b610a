//! Model configuration: the typed form in which wrong states cannot be written, and the way to it.
//!
//! The protobuf form ([`proto::ModelConfig`]) is what files hold and clients see. It is turned into [`ModelConfig`] once,
//! by parse, override, complete and validate in this order; the rest of the server reads only the typed form.
mod backend_fields;
mod complete;
mod errors;
mod instances;
mod misspelt;
mod resolve;
mod sequence;
mod typed;
mod unsupported;
mod validate;
mod versions;
mod warmup;

pub use backend_fields::{FileEntry, ModelLayout};
pub use complete::CompletionContext;
pub use errors::{ConfigErrors, Problem};
pub use instances::{InstanceGroup, InstanceKind, RateLimits, ResourceNeed, SecondaryDevice};
pub use misspelt::{misspelt_names, unknown_setting};
pub use resolve::{
    Completion, ConfigSource, Declared, GivenConfig, KEEP_BATCH_PARAMETER, complete, declare, finish, read,
};
pub use sequence::{Control, ControlInput, FalseTrue, InitialState, SequenceScheduling, StateSpec};
pub use versions::{
    VersionDirectory, absent_versions, no_version_available, select_versions, version_directory,
};
pub use warmup::{Warmup, WarmupData, WarmupInput};

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use scheduling::DynamicBatching;

use crate::{DataType, Name, Shape};

/// A validated configuration with all defaults in place.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Equal to the name of the model's directory.
    pub name: Name,
    /// Legacy framework id; may be empty.
    pub platform: String,
    /// Name of the backend.
    pub backend: String,
    /// `None`: tensors have no batch dimension (`max_batch_size: 0`).
    pub max_batch_size: Option<NonZeroU32>,
    /// In the order of the configuration; names are unique.
    pub inputs: Vec<InputSpec>,
    /// In the order of the configuration; names are unique.
    pub outputs: Vec<OutputSpec>,
    /// Inputs that the backend makes from the composition of a batch.
    pub batch_inputs: Vec<BatchInput>,
    /// Outputs that are scattered to requests by the shape of an input.
    pub batch_outputs: Vec<BatchOutput>,
    /// How requests become batches.
    pub scheduling: Scheduling,
    /// At least one group with at least one instance.
    pub instance_groups: Vec<InstanceGroup>,
    /// Which version directories are served.
    pub version_policy: VersionPolicy,
    /// File or directory of the model inside the version directory.
    pub default_model_filename: String,
    /// Free settings for the backend.
    pub parameters: BTreeMap<String, String>,
    /// Further labels of the model's metrics.
    pub metric_tags: BTreeMap<String, String>,
    /// Graph optimisation level, as the backend understands it.
    pub graph_level: Option<i32>,
    /// `PRIORITY_MIN`: gives way to other models where processors are short.
    pub low_priority: bool,
    /// Accelerators asked for on the CPU, with their parameters.
    pub cpu_accelerators: Vec<Accelerator>,
    /// Libraries of custom operations.
    pub op_library_filenames: Vec<String>,
    /// A request may have any number of responses.
    pub decoupled: bool,
    /// The backend waits while a client has not read so many responses of a request (parameter
    /// `MAX_UNREAD_RESPONSES`). `None`: it never waits for a client.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// Responses may be cached, where the server has a cache.
    pub response_cache: bool,
    /// What each instance runs before it may serve, in this order.
    pub warmups: Vec<Warmup>,
}

/// How requests become batches (`scheduling_choice`).
#[derive(Debug, Clone)]
pub enum Scheduling {
    /// Each request runs alone.
    Unbatched,
    /// `dynamic_batching`.
    Dynamic(DynamicBatching),
    /// `sequence_batching`.
    Sequence(SequenceScheduling),
}

/// One entry of `input`.
#[derive(Debug, Clone)]
pub struct InputSpec {
    /// Not empty.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension; -1 is any size.
    pub dims: Shape,
    /// The shape the backend sees instead of `dims`, batch dimension excluded.
    pub reshape: Option<Shape>,
    /// A request may leave it out.
    pub optional: bool,
    /// Requests with different shapes may share a batch.
    pub allow_ragged_batch: bool,
    /// Its values are a shape, equal for all requests of a batch, and it has no batch dimension.
    pub is_shape_tensor: bool,
}

/// One entry of `output`.
#[derive(Debug, Clone)]
pub struct OutputSpec {
    /// Not empty.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Without the batch dimension; -1 is any size.
    pub dims: Shape,
    /// The shape the backend gives instead of `dims`, batch dimension excluded.
    pub reshape: Option<Shape>,
    /// Label file, relative to the model's directory.
    pub label_filename: Option<String>,
    /// Labels by class index, once the file was read; empty without a label file.
    pub labels: Arc<[String]>,
    /// Its values are a shape; it has no batch dimension.
    pub is_shape_tensor: bool,
}

/// One entry of `batch_input`.
#[derive(Debug, Clone)]
pub struct BatchInput {
    /// What is made.
    pub kind: BatchInputKind,
    /// Model inputs that receive it.
    pub target_names: Vec<Name>,
    /// INT32 or FP32.
    pub datatype: DataType,
    /// The input it is computed from.
    pub source_input: Name,
}

/// What a batch input holds (`BatchInput.Kind`); element counts are those of the source input per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchInputKind {
    /// `[requests]`: element count of each request.
    ElementCount,
    /// `[requests]`: running sum of element counts.
    AccumulatedElementCount,
    /// `[requests + 1]`: running sum that begins with 0.
    AccumulatedElementCountWithZero,
    /// Only the shape matters: `[largest element count]`.
    MaxElementCountAsShape,
    /// `[rows, rank - 1]`: the dims of each row without the batch dimension.
    ItemShape,
    /// `[rows * (rank - 1)]`: the same, flattened.
    ItemShapeFlatten,
}

/// One entry of `batch_output`; its only kind scatters by the shape of an input.
#[derive(Debug, Clone)]
pub struct BatchOutput {
    /// Model outputs that are scattered.
    pub target_names: Vec<Name>,
    /// The input whose shape says how much each request receives.
    pub source_input: Name,
}

/// Which version directories are served (`version_policy`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The numerically largest.
    Latest(u32),
    /// Every one.
    All,
    /// Those that exist.
    Specific(Vec<i64>),
}

/// One entry of `execution_accelerators`.
#[derive(Debug, Clone)]
pub struct Accelerator {
    /// As the backend knows it.
    pub name: String,
    /// Its settings.
    pub parameters: BTreeMap<String, String>,
}

/// What the server works with, and what clients are shown.
#[derive(Debug, Clone)]
pub struct ResolvedConfig {
    /// Validated and typed.
    pub typed: ModelConfig,
    /// The completed protobuf form.
    pub shown: proto::ModelConfig,
    /// What is no error and yet hardly meant, for the log: each names the model.
    pub warnings: Vec<String>,
}

impl ModelConfig {
    /// The configuration of an input.
    pub fn input(&self, name: &str) -> Option<&InputSpec> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// The configuration of an output.
    pub fn output(&self, name: &str) -> Option<&OutputSpec> {
        self.outputs.iter().find(|output| output.name == name)
    }

    /// Rows a batch may have, 1 for models without a batch dimension.
    pub fn max_rows(&self) -> u32 {
        self.max_batch_size.map_or(1, NonZeroU32::get)
    }

    /// `platform`, or `backend` where that is empty: what metadata calls the platform.
    pub fn shown_platform(&self) -> &str {
        if self.platform.is_empty() { &self.backend } else { &self.platform }
    }

    /// Dimensions as clients write them: a leading -1 stands for the batch.
    pub fn client_dims(&self, dims: &[i64]) -> Shape {
        self.max_batch_size.map(|_| -1).into_iter().chain(dims.iter().copied()).collect()
    }
}

impl InputSpec {
    /// The shape a backend sees for a client's shape (both without batch dimension): values at the -1 positions of
    /// `dims` move, in order, to the -1 positions of `reshape`.
    pub fn inward(&self, shape: &[i64]) -> Shape {
        self.reshape.as_ref().map_or_else(|| shape.into(), |reshape| substitute(&self.dims, shape, reshape))
    }
}

impl OutputSpec {
    /// The shape a client sees for a backend's shape (both without batch dimension); the way back of a reshape.
    pub fn outward(&self, shape: &[i64]) -> Shape {
        self.reshape.as_ref().map_or_else(|| shape.into(), |reshape| substitute(reshape, shape, &self.dims))
    }
}

/// `to` with its -1 replaced, in order, by what `shape` has where `from` has -1.
fn substitute(from: &[i64], shape: &[i64], to: &[i64]) -> Shape {
    let mut values = from.iter().zip(shape).filter(|(pattern, _)| **pattern == -1).map(|(_, value)| *value);
    to.iter().map(|&dim| if dim == -1 { values.next().unwrap_or(-1) } else { dim }).collect()
}
