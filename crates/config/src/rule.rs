//! The rules for configurations, by their ids. Reports name them, and `docs/checking.md` lists them.

/// A rule for the files of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigRule {
    /// The name in reports. It never changes its meaning.
    pub id: &'static str,
    /// The rule in one sentence.
    pub summary: &'static str,
}

impl ConfigRule {
    /// A rule with this id.
    pub const fn new(id: &'static str, summary: &'static str) -> Self {
        Self { id, summary }
    }
}

macro_rules! rules {
    ($($name:ident = $id:literal: $summary:literal;)*) => {
        $(#[doc = $summary] pub const $name: ConfigRule = ConfigRule::new($id, $summary);)*

        /// All rules for configurations.
        pub const ALL: &[ConfigRule] = &[$($name),*];
    };
}

rules! {
    SYNTAX = "syntax": "A file is text in the format of protocol buffers.";
    UNKNOWN_FIELD = "unknown-field": "Each field is one of the schema's.";
    UNKNOWN_VALUE = "unknown-value": "Each value of an enumeration is one of the schema's.";
    WRONG_VALUE = "wrong-value": "A value has the type of its field.";
    REPEATED_FIELD = "repeated-field": "A field that is not a list is set once, and only one field of a choice is set.";
    CONFIGURATION = "configuration": "A configuration can be read and completed.";
    MODEL_NAME = "model-name": "The name of a model is that of its directory.";
    BACKEND = "backend": "The backend is known, or follows from the model's files.";
    PLATFORM = "platform": "The platform fits the backend.";
    MAX_BATCH_SIZE = "max-batch-size": "`max_batch_size` is not negative, and the model can have such batches.";
    VERSION_POLICY = "version-policy": "The version policy selects versions that exist.";
    DYNAMIC_BATCHING = "dynamic-batching": "Preferred sizes, priorities and queue policies of `dynamic_batching` fit each other.";
    SEQUENCE_BATCHING = "sequence-batching": "Controls and strategy of `sequence_batching` are complete and fit each other.";
    STATE = "state": "An implicit state and its initial value fit each other.";
    ENSEMBLE = "ensemble": "An ensemble has complete steps, and no fields that only other models have.";
    ENSEMBLE_TENSORS = "ensemble-tensors": "Each tensor of an ensemble is made once, and used.";
    ENSEMBLE_MEMBERS = "ensemble-members": "The members of an ensemble exist, and fit in names, datatypes, shapes and batch sizes.";
    RESPONSE_CACHE = "response-cache": "The response cache is enabled only for models that can use it, on a server that has one.";
    MODEL_METRICS = "model-metrics": "`model_metrics` names a family and ascending buckets.";
    TENSOR = "tensor": "An input or output has a name, a datatype and possible dims.";
    BATCH_TENSOR = "batch-tensor": "`batch_input` and `batch_output` name inputs and outputs that exist.";
    INSTANCE_GROUP = "instance-group": "Instance groups have devices that exist.";
    MODEL_FILE = "model-file": "Each version that is served has a model file that its backend can read.";
    GRAPH = "graph": "The configuration agrees with the graph: inputs, outputs, datatypes, shapes, batch dimension.";
    EXTERNAL_DATA = "external-data": "The files with a graph's external data are beside the graph.";
    PARAMETER = "parameter": "A parameter has a value that its reader accepts.";
    FILE_PATH = "file-path": "Files that a configuration names are inside the model's directory, and exist.";
    WARMUP = "warmup": "Samples of `model_warmup` have data and fit the batch size.";
    VALUE = "value": "A value has a meaning: a number from 1, a name, a size that memory can have.";
}
