//! The typed form of a model configuration.
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use scheduling::DynamicBatching;
use vocabulary::{DataType, LabelName, Name, NameIndex, Shape};

use super::{EnsembleScheduling, InstanceGroup, SequenceScheduling, VersionPolicy, Warmup};

/// A validated configuration with all defaults filled in.
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
    /// How many rows one request may have if they may be more than `max_batch_size`, because the backend has chosen
    /// that size itself. A request with more rows than `max_batch_size` is a batch of its own.
    pub max_request_rows: Option<NonZeroU32>,
    /// In the order of the configuration; names are unique, and never change.
    pub inputs: Vec<InputSpec>,
    /// In the order of the configuration; names are unique, and never change.
    pub outputs: Vec<OutputSpec>,
    /// Where the names of `inputs` are.
    pub input_index: NameIndex,
    /// Where the names of `outputs` are.
    pub output_index: NameIndex,
    /// Inputs that the backend computes from the composition of a batch.
    pub batch_inputs: Vec<BatchInput>,
    /// Outputs that the backend splits among the requests by the shape of an input.
    pub batch_outputs: Vec<BatchOutput>,
    /// The scheduling choice.
    pub scheduling: Scheduling,
    /// At least one group with at least one instance. An ensemble has none.
    pub instance_groups: Vec<InstanceGroup>,
    /// Which version directories are served.
    pub version_policy: VersionPolicy,
    /// File or directory of the model inside the version directory.
    pub default_model_filename: String,
    /// Free settings for the backend.
    pub parameters: BTreeMap<String, String>,
    /// Further labels of the model's metrics: the keys of `metric_tags` with an underscore before them.
    pub metric_tags: BTreeMap<LabelName, String>,
    /// The bounds of histograms that the model chooses (`model_metrics`), by the name of the family. Later entries of a
    /// family replace earlier ones.
    pub histogram_buckets: BTreeMap<String, Vec<f64>>,
    /// Graph optimisation level, as the backend understands it.
    pub graph_level: Option<i32>,
    /// `PRIORITY_MIN`: the model yields to other models when processors are scarce.
    pub low_priority: bool,
    /// Requested accelerators for the CPU, with their parameters.
    pub cpu_accelerators: Vec<Accelerator>,
    /// Libraries of custom operations.
    pub op_library_filenames: Vec<String>,
    /// A request may have any number of responses. For an ensemble this follows from its members.
    pub decoupled: bool,
    /// Responses may depend on earlier requests of a sequence. For an ensemble this follows from its members.
    pub has_sequences: bool,
    /// The backend waits while a client has not read this many responses of a request (parameter
    /// `MAX_UNREAD_RESPONSES`). `None`: the backend never waits for a client.
    pub most_unread_responses: Option<NonZeroUsize>,
    /// How long the model stays in memory when not all models fit.
    pub memory: MemoryRank,
    /// How the server may cache responses, if it has a cache. `None`: it may not.
    pub response_cache: Option<ResponseCaching>,
    /// The batches that each instance runs before it may serve requests, in this order.
    pub warmups: Vec<Warmup>,
}

/// Which models stay in memory when not all fit (`--model-memory-budget`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryRank {
    /// The model is loaded at the start and stays (`MEMORY_PINNED`).
    pub is_pinned: bool,
    /// A model does not make room for one of a smaller priority (`MEMORY_PRIORITY`), from 0 to 1000.
    pub priority: u32,
}

/// The use of the response cache (`response_cache` with `enable: true`, and parameters that begin with `CACHE_`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseCaching {
    /// An older answer is too old (`CACHE_TTL_SECONDS`). `None`: answers do not age.
    pub time_to_live: Option<Duration>,
    /// After that time, an answer is still given for so long, while one request computes a new one
    /// (`CACHE_STALE_SECONDS`).
    pub stale_time: Duration,
    /// A larger answer is not stored (`CACHE_MAX_ANSWER_BYTES`), in bytes of memory as a response counts them.
    pub max_answer_bytes: Option<NonZeroUsize>,
    /// The model has a part of the cache of so many bytes for itself (`CACHE_QUOTA_BYTES`).
    pub quota_bytes: Option<NonZeroUsize>,
    /// All responses of a decoupled model are one answer (`CACHE_DECOUPLED`).
    pub decoupled: bool,
}

/// How requests form batches (`scheduling_choice`).
#[derive(Debug, Clone)]
pub enum Scheduling {
    /// Each request runs alone.
    Unbatched,
    /// `dynamic_batching`.
    Dynamic(DynamicBatching),
    /// `sequence_batching`.
    Sequence(SequenceScheduling),
    /// `ensemble_scheduling`: the model passes each request through other models.
    Ensemble(Arc<EnsembleScheduling>),
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
    /// The shape that the backend sees instead of `dims`, without the batch dimension.
    pub reshape: Option<Shape>,
    /// A request may omit it.
    pub optional: bool,
    /// Requests with different shapes may share a batch.
    pub allow_ragged_batch: bool,
    /// Its values are a shape, equal for all requests of a batch. It has no batch dimension.
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
    /// The shape that the backend returns instead of `dims`, without the batch dimension.
    pub reshape: Option<Shape>,
    /// Label file, relative to the model's directory.
    pub label_filename: Option<String>,
    /// Labels by class index, after the label file was read; empty without a label file.
    pub labels: Arc<[String]>,
    /// Its values are a shape. It has no batch dimension.
    pub is_shape_tensor: bool,
}

/// One entry of `batch_input`.
#[derive(Debug, Clone)]
pub struct BatchInput {
    /// The kind of value.
    pub kind: BatchInputKind,
    /// Model inputs that receive it.
    pub target_names: Vec<Name>,
    /// INT32 or FP32.
    pub datatype: DataType,
    /// The input from which the backend computes it.
    pub source_input: Name,
}

/// The content of a batch input (`BatchInput.Kind`). Element counts are those of the source input, for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchInputKind {
    /// `[requests]`: element count of each request.
    ElementCount,
    /// `[requests]`: running sum of element counts.
    AccumulatedElementCount,
    /// `[requests + 1]`: running sum that starts with 0.
    AccumulatedElementCountWithZero,
    /// Only the shape matters: `[largest element count]`.
    MaxElementCountAsShape,
    /// `[rows, rank - 1]`: the dims of each row without the batch dimension.
    ItemShape,
    /// `[rows * (rank - 1)]`: as [`ItemShape`](Self::ItemShape), flattened.
    ItemShapeFlatten,
}

/// One entry of `batch_output`. Its only kind splits by the shape of an input.
#[derive(Debug, Clone)]
pub struct BatchOutput {
    /// Model outputs that the backend splits.
    pub target_names: Vec<Name>,
    /// The input whose shape gives the size of each request's part.
    pub source_input: Name,
}

/// One entry of `execution_accelerators`.
#[derive(Debug, Clone)]
pub struct Accelerator {
    /// The name that the backend knows.
    pub name: String,
    /// Its settings.
    pub parameters: BTreeMap<String, String>,
}

impl ModelConfig {
    /// The configuration of an input.
    pub fn input(&self, name: &str) -> Option<&InputSpec> {
        self.input_place(name).map(|place| &self.inputs[place])
    }

    /// The configuration of an output.
    pub fn output(&self, name: &str) -> Option<&OutputSpec> {
        let place = self.output_index.place(name, self.outputs.iter().map(|output| &output.name))?;
        self.outputs.get(place)
    }

    /// The place of an input among all.
    pub fn input_place(&self, name: &str) -> Option<usize> {
        self.input_index.place(name, self.inputs.iter().map(|input| &input.name))
    }

    /// The largest number of rows of a batch; 1 for models without a batch dimension.
    pub fn max_rows(&self) -> u32 {
        self.max_batch_size.map_or(1, NonZeroU32::get)
    }

    /// How many rows one request may have. `None` for models without a batch dimension.
    pub fn request_limit(&self) -> Option<NonZeroU32> {
        self.max_batch_size.map(|size| self.max_request_rows.unwrap_or(size))
    }

    /// `platform`, or `backend` if that is empty: the platform in the model metadata.
    pub fn shown_platform(&self) -> &str {
        if self.platform.is_empty() { &self.backend } else { &self.platform }
    }

    /// Dimensions in the clients' form: a leading -1 stands for the batch.
    pub fn client_dims(&self, dims: &[i64]) -> Shape {
        self.max_batch_size.map(|_| -1).into_iter().chain(dims.iter().copied()).collect()
    }

    /// As [`OutputSpec::client_shape`], of an output of this model.
    pub fn client_shape(&self, output: &OutputSpec, shape: &[i64]) -> Shape {
        output.client_shape(shape, self.max_batch_size.is_some() && !output.is_shape_tensor)
    }
}

impl InputSpec {
    /// The shape that a backend sees for the shape that a client gives, both with or without a batch dimension.
    pub fn backend_shape(&self, shape: &[i64], has_batch: bool) -> Shape {
        match &self.reshape {
            Some(reshape) => reshaped(shape, has_batch, &self.dims, reshape),
            None => shape.into(),
        }
    }
}

impl OutputSpec {
    /// The shape that a client sees for the shape that a backend gives, both with or without a batch dimension.
    pub fn client_shape(&self, shape: &[i64], has_batch: bool) -> Shape {
        match &self.reshape {
            Some(reshape) => reshaped(shape, has_batch, reshape, &self.dims),
            None => shape.into(),
        }
    }
}

/// A shape of the form `from` in the form `to`. The values at the -1 positions of `from` move, in order, to the -1 positions
/// of `to`. The batch dimension stays.
fn reshaped(shape: &[i64], has_batch: bool, from: &[i64], to: &[i64]) -> Shape {
    let (batch, row) = shape.split_at(usize::from(has_batch).min(shape.len()));
    let mut values = from.iter().zip(row).filter(|(pattern, _)| **pattern == -1).map(|(_, value)| *value);
    let row = to.iter().map(|&dim| if dim == -1 { values.next().unwrap_or(-1) } else { dim });
    batch.iter().copied().chain(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_dimensions_move_and_the_batch_dimension_stays() {
        let shape = |has_batch, from: &[i64], to: &[i64], shape: &[i64]| {
            let (client, backend) = (Shape::from(from), Some(Shape::from(to)));
            let input = InputSpec {
                name: "IN".into(),
                datatype: DataType::Fp32,
                dims: client.clone(),
                reshape: backend.clone(),
                optional: false,
                allow_ragged_batch: false,
                is_shape_tensor: false,
            };
            let output = OutputSpec {
                name: "OUT".into(),
                datatype: DataType::Fp32,
                dims: client,
                reshape: backend,
                label_filename: None,
                labels: Arc::default(),
                is_shape_tensor: false,
            };
            let seen = input.backend_shape(shape, has_batch);
            assert_eq!(output.client_shape(&seen, has_batch)[..], *shape);
            seen.to_vec()
        };
        assert_eq!(shape(false, &[2, 3], &[3, 2], &[2, 3]), [3, 2]);
        assert_eq!(shape(true, &[2, 3], &[6], &[5, 2, 3]), [5, 6]);
        assert_eq!(shape(true, &[1], &[], &[5, 1]), [5]);
        assert_eq!(shape(true, &[-1, 2, -1], &[-1, -1, 2], &[5, 7, 2, 9]), [5, 7, 9, 2]);
    }
}
