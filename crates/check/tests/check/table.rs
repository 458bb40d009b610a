//! Configurations, good and bad, by the rules of Triton's configurations.

mod rules;
mod values;
mod variants;

/// A configuration, and a part of its refusal. Empty: the configuration is good.
pub(crate) struct Row {
    pub(crate) config: String,
    pub(crate) refusal: String,
}

const IO: &str = "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } output { name: 'OUT' data_type: TYPE_INT32 dims: -1 }";

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let whole = [WHOLE, TEXT].concat();
    let whole = whole.into_iter().map(|(config, refusal)| Row::new(config.to_owned(), refusal));
    let added = [TOP_LEVEL, DYNAMIC, SEQUENCE, INSTANCES, BATCH_IO, MORE].concat();
    let added = added.into_iter().map(|(config, refusal)| Row::of_identity(config, refusal));
    let variants = [variants::tensors(), variants::ensembles(), variants::controls()];
    let more = [values::rows(), rules::rows()];
    whole.chain(added).chain(variants.into_iter().flatten()).chain(more.into_iter().flatten()).collect()
}

impl Row {
    fn new(config: String, refusal: &str) -> Self {
        Self { config, refusal: refusal.to_owned() }
    }

    /// A configuration of the backend `identity` with an input and an output, and `more`.
    fn of_identity(more: &str, refusal: &str) -> Self {
        Self::new(format!("backend: 'identity' {IO} {more}"), refusal)
    }
}

type Rows = &'static [(&'static str, &'static str)];

/// Mistakes of the text.
const TEXT: Rows = &[
    ("nme: 'm'", "'nme' is not a field of ModelConfig, did you mean 'name'?"),
    ("max_batchsize: 4", "did you mean 'max_batch_size'?"),
    ("maxBatchSize: 4", "did you mean 'max_batch_size'?"),
    ("backend: identity", "expected a string in quotes for 'backend'"),
    ("backend: 'identity' max_batch_size: 1.5", "expected a 32-bit integer for 'max_batch_size'"),
    ("backend: 'identity' max_batch_size: 'a'", "expected a 32-bit integer for 'max_batch_size'"),
    ("backend: 'identity' max_batch_size: 3000000000", "expected a 32-bit integer for 'max_batch_size'"),
    ("backend: 'identity' max_batch_size 4", "expected ':' after 'max_batch_size'"),
    ("backend: 'identity' backend: 'identity'", "'backend' is already set on line 1"),
    ("backend: 'identity' dynamic_batching {} sequence_batching {}", "excludes 'dynamic_batching'"),
    ("backend: 'identity' input { dims: [ 1, ] }", "may not end in a comma"),
    ("backend: 'identity' input { data_type: TYPE_FLOAT }", "'TYPE_FLOAT' is not a value of DataType"),
    ("backend: 'identity' input { data_type: type_fp32 }", "did you mean 'TYPE_FP32'?"),
    ("backend: 'identity' input {", "found the end of the file"),
    ("backend: 'identity' }", "closes nothing"),
    ("backend: 'identity", "has no closing quote"),
    ("backend: 'identity' input { optional: TRUE }", "expected true or false for 'optional'"),
    ("backend: 'identity' input { optional: yes }", "expected true or false for 'optional'"),
    ("backend: 'identity' instance_group { kind: CPU }", "'CPU' is not a value of Kind"),
    ("backend: 'identity' instance_group { counts: 2 }", "did you mean 'count'?"),
    (
        "backend: 'identity' dynamic_batching { prefered_batch_size: 2 }",
        "did you mean 'preferred_batch_size'?",
    ),
    ("backend: 'identity' version_policy { lastest { num_versions: 1 } }", "did you mean 'latest'?"),
    ("backend: 'identity' parameters { name: 'k' }", "'name' is not a field of ParametersEntry"),
];

/// Whole configurations.
const WHOLE: Rows = &[
    ("name: 'other' backend: 'identity'", "unexpected directory name"),
    ("", "Could not determine backend for model"),
    ("backend: 'nothing'", "unable to find backend library for backend 'nothing'"),
    ("platform: 'nothing'", "unexpected platform type 'nothing'"),
    ("backend: 'identity' platform: 'ensemble'", "must have platform type 'ensemble' and empty backend type"),
    ("backend: 'tensorrt' platform: 'onnxruntime_onnx'", "pair, got:onnxruntime_onnx, tensorrt"),
    ("backend: 'onnxruntime' platform: 'tensorrt_plan'", "pair, got:tensorrt_plan, onnxruntime"),
    ("backend: 'pytorch' platform: 'onnxruntime_onnx'", "pair, got:onnxruntime_onnx, pytorch"),
    ("backend: 'tensorflow' platform: 'tensorrt_plan'", "pair, got:tensorrt_plan, tensorflow"),
    ("backend: 'tensorflow'", "pair, got:, tensorflow"),
    ("platform: 'ensemble'", "ensemble scheduling must be set for ensemble"),
    ("backend: 'identity' ensemble_scheduling {}", "cannot be set for model"),
    ("backend: 'identity' platform: 'anything'", ""),
    ("backend: 'identity' input { data_type: TYPE_INT32 dims: 1 }", "model input must specify 'name'"),
    ("backend: 'identity' output { data_type: TYPE_INT32 dims: 1 }", "model output must specify 'name'"),
    ("backend: 'identity' input { name: 'A' dims: 1 }", "model input 'A' must specify 'data_type'"),
    ("backend: 'identity' output { name: 'A' dims: 1 }", "model output 'A' must specify 'data_type'"),
    ("backend: 'identity' input { name: 'A' data_type: TYPE_INT32 }", "model input 'A' must specify 'dims'"),
    (
        "backend: 'identity' output { name: 'A' data_type: TYPE_INT32 }",
        "model output 'A' must specify 'dims'",
    ),
];

/// Fields of the configuration itself.
const TOP_LEVEL: Rows = &[
    ("", ""),
    ("max_batch_size: 0", ""),
    ("max_batch_size: 8", ""),
    ("max_batch_size: -1", "'max_batch_size' must be non-negative value"),
    ("max_batch_size: -2147483648", "'max_batch_size' must be non-negative value"),
    ("version_policy { latest { num_versions: 0 } }", "at least one version must be available"),
    ("version_policy { specific { versions: 7 } }", "at least one version must be available"),
    ("version_policy { specific { } }", "at least one version must be available"),
    ("version_policy { specific { versions: [ 1, 7 ] } }", ""),
    ("version_policy { all { } }", ""),
    ("version_policy { }", ""),
    ("default_model_filename: '../../x'", "is outside model directory"),
    ("default_model_filename: '/etc/passwd'", "is outside model directory"),
    (
        "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        "with 'decoupled' transaction policy",
    ),
    ("response_cache { enable: true } sequence_batching { }", "with sequence batching scheduler"),
    ("response_cache { enable: true }", ""),
    ("response_cache { enable: false } sequence_batching { }", ""),
    (
        "model_metrics { metric_control { histogram_options { buckets: 1 } } }",
        "must specify 'metric_identifier'",
    ),
    (
        "model_metrics { metric_control { metric_identifier { } histogram_options { buckets: 1 } } }",
        "non-empty 'family'",
    ),
    (
        "model_metrics { metric_control { metric_identifier { family: 'f' } } }",
        "must specify 'histogram_options'",
    ),
    (
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { } } }",
        "non-empty 'buckets'",
    ),
    (
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: [ 2, 1 ] } } }",
        "ascending 'buckets'",
    ),
    (
        "parameters { key: 'CACHE_TTL_SECONDS' value { string_value: 'soon' } }",
        "which is no positive number of seconds",
    ),
    (
        "parameters { key: 'CACHE_STALE_SECONDS' value { string_value: '1' } }",
        "has no effect without 'CACHE_TTL_SECONDS'",
    ),
    ("parameters { key: 'MAX_UNREAD_RESPONSES' value { string_value: '0' } }", "which is no number from 1"),
    ("parameters { key: 'CACHE_DECOUPLED' value { string_value: 'maybe' } }", "neither 'true' nor 'false'"),
    ("parameters { key: 'anything' value { string_value: 'at all' } }", ""),
    ("model_repository_agents { agents { name: 'nobody' } }", "nobody"),
    ("input { name: 'IN' data_type: TYPE_FP32 dims: 1 }", "model input 'IN' is specified more than once"),
    ("output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }", "model output 'OUT' is specified more than once"),
    (
        "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: '../x' }",
        "is outside model directory",
    ),
    (
        "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: 'missing.txt' }",
        "failed to open text file for read",
    ),
];

const DYNAMIC: Rows = &[
    ("dynamic_batching { }", ""),
    ("max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 2, 4 ] }", ""),
    ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 0 }", "preferred size must be positive"),
    ("max_batch_size: 4 dynamic_batching { preferred_batch_size: -1 }", "preferred size must be positive"),
    ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }", "must be <= max batch size"),
    ("dynamic_batching { preferred_batch_size: 1 }", "must be <= max batch size"),
    ("dynamic_batching { priority_levels: 2 }", "default priority level must be in range [1, 2]"),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
        "default priority level must be in range [1, 2]",
    ),
    ("dynamic_batching { priority_levels: 2 default_priority_level: 1 }", ""),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } } }",
        "must have priority level in range [1, 2]",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } } }",
        "must have priority level in range [1, 2]",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value { max_queue_size: 1 } } }",
        "",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
        "Only one priority level is allowed",
    ),
    (
        "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }",
        "can not have DELAY as timeout action",
    ),
    ("dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }", ""),
    ("dynamic_batching { preserve_ordering: true }", ""),
    ("dynamic_batching { default_queue_policy { timeout_action: 7 } }", "has no value 7"),
];

const SEQUENCE: Rows = &[
    ("sequence_batching { }", ""),
    (
        "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: [ 2 ] max_candidate_sequences: 4 } }",
        "",
    ),
    (
        "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 0 } }",
        "preferred batch size must be positive",
    ),
    (
        "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 5 } }",
        "must be <= max batch size",
    ),
    ("sequence_batching { direct { minimum_slot_utilization: 1.5 } }", "must be in range (0.0, 1.0]"),
    ("sequence_batching { direct { minimum_slot_utilization: -1 } }", "must be in range (0.0, 1.0]"),
    ("sequence_batching { direct { minimum_slot_utilization: 0.5 } }", ""),
    (
        "sequence_batching { control_input { control { kind: CONTROL_SEQUENCE_START bool_false_true: [ 0, 1 ] } } }",
        "control tensor must have a name",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { } } }",
        "expects state'S' to have state_data set",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
        "does not match the state data type",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { data_type: TYPE_FP32 dims: 1 zero_data: true } } }",
        "Field 'name' must be set",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 1, 2 ] zero_data: true } } }",
        "doesn't match the size of 'state' dimensions",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_FP32 dims: 2 zero_data: true } } }",
        "doesn't match 'state' dim description",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: -1 initial_state { name: 'i' data_type: TYPE_FP32 dims: -1 zero_data: true } } }",
        "contains variable dimensions",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_FP32 dims: 1 data_file: 'missing' } } }",
        "failed to open text file",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_FP32 dims: 1 data_file: '../../../x' } } }",
        "is outside model directory",
    ),
    ("sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 } }", ""),
];

const INSTANCES: Rows = &[
    ("instance_group { count: 2 }", ""),
    ("instance_group { count: 0 }", ""),
    ("instance_group { kind: KIND_CPU gpus: 0 }", "has kind KIND_CPU but specifies one or more GPUs"),
    ("instance_group { kind: KIND_MODEL gpus: 0 }", "has kind KIND_MODEL but specifies one or more GPUs"),
    ("instance_group { kind: KIND_GPU }", "has kind KIND_GPU but server does not support GPUs"),
    ("instance_group { kind: KIND_GPU gpus: 0 }", "has kind KIND_GPU but server does not support GPUs"),
    ("instance_group { kind: 9 }", "has unknown kind 9"),
    (
        "instance_group { profile: '1' }",
        "specifies profile field which is only supported for TensorRT models",
    ),
    ("instance_group { kind: KIND_MODEL }", ""),
    ("instance_group { name: 'a' } instance_group { name: 'b' }", ""),
    ("instance_group { rate_limiter { resources { name: 'R' count: 1 } priority: 2 } }", ""),
];

const BATCH_IO: Rows = &[
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' data_type: TYPE_INT32 }",
        "expects 1 source input, got 0",
    ),
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' data_type: TYPE_INT32 source_input: [ 'IN', 'IN' ] }",
        "expects 1 source input, got 2",
    ),
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' data_type: TYPE_INT8 source_input: 'IN' }",
        "must be TYPE_INT32 or TYPE_FP32",
    ),
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' data_type: TYPE_INT32 source_input: 'INN' }",
        "unknown source input name 'INN'",
    ),
    (
        "batch_input { kind: 42 target_name: 'B' data_type: TYPE_INT32 source_input: 'IN' }",
        "unknown batch input kind '42'",
    ),
    ("batch_output { target_name: 'OUT' }", "expects 1 source input, got 0"),
    ("batch_output { target_name: 'OUTT' source_input: 'IN' }", "unknown target output name 'OUTT'"),
    ("batch_output { target_name: 'OUT' source_input: 'X' }", "unknown source input name 'X'"),
    ("batch_output { kind: 3 target_name: 'OUT' source_input: 'IN' }", "unknown batch output kind '3'"),
    ("batch_output { target_name: [ 'OUT', 'OUT' ] source_input: 'IN' }", "can only be specified once"),
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' data_type: TYPE_INT32 source_input: 'IN' }",
        "",
    ),
];

/// Warm-up.
const MORE: Rows = &[
    (
        "model_warmup { name: 'w' batch_size: 2 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
        "exceeds maximum 1",
    ),
    (
        "max_batch_size: 4 model_warmup { name: 'w' batch_size: 5 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
        "exceeds maximum 4",
    ),
    (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: -1 zero_data: true } } }",
        "all variable-size dimensions are specified",
    ),
    (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 } } }",
        "to have input_data_type set",
    ),
    (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 input_data_file: 'missing' } } }",
        "missing",
    ),
    (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 input_data_file: '../../../x' } } }",
        "is outside model directory",
    ),
    (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
        "",
    ),
    ("model_warmup { name: 'w' batch_size: 0 inputs { key: 'NONE' value { } } }", ""),
    ("model_warmup { name: 'w' batch_size: 1 }", "IN"),
];
