//! More configurations for each rule: other fields, other values, the bounds.
use super::Row;

pub(super) fn rows() -> Vec<Row> {
    let mut rows: Vec<_> =
        WHOLE.iter().map(|(config, refusal)| Row::new((*config).to_owned(), refusal)).collect();
    rows.extend(MORE.iter().map(|(more, refusal)| Row::of_identity(more, refusal)));
    for (pairs, refusal) in PARAMETERS {
        let text = |(key, value): &(&str, &str)| {
            format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}")
        };
        let parameters: Vec<_> = pairs.iter().map(text).collect();
        rows.push(Row::of_identity(&parameters.join(" "), refusal));
    }
    for (state, refusal) in STATES {
        rows.push(Row::of_identity(&format!("sequence_batching {{ state {{ {state} }} }}"), refusal));
    }
    for (sample, refusal) in SAMPLES {
        let text = format!("model_warmup {{ name: 'w' batch_size: 1 {sample} }}");
        rows.push(Row::of_identity(&text, refusal));
    }
    rows
}

type Rows = &'static [(&'static str, &'static str)];

/// Backends, platforms, names.
const WHOLE: Rows = &[
    ("backend: 'vllm'", "unable to find backend library for backend 'vllm'"),
    ("backend: 'Identity'", "unable to find backend library for backend 'Identity'"),
    ("backend: 'identity '", "unable to find backend library for backend 'identity '"),
    ("platform: 'onnxruntime'", "unexpected platform type 'onnxruntime'"),
    ("platform: 'Ensemble'", "unexpected platform type 'Ensemble'"),
    ("platform: 'python'", "unexpected platform type 'python'"),
    ("backend: 'tensorrt' platform: 'pytorch_libtorch'", "pair, got:pytorch_libtorch, tensorrt"),
    ("backend: 'tensorrt' platform: 'tensorflow_graphdef'", "pair, got:tensorflow_graphdef, tensorrt"),
    ("backend: 'onnxruntime' platform: 'pytorch_libtorch'", "pair, got:pytorch_libtorch, onnxruntime"),
    ("backend: 'onnxruntime' platform: 'onnx'", "pair, got:onnx, onnxruntime"),
    ("backend: 'pytorch' platform: 'tensorflow_savedmodel'", "pair, got:tensorflow_savedmodel, pytorch"),
    ("backend: 'tensorflow' platform: 'onnxruntime_onnx'", "pair, got:onnxruntime_onnx, tensorflow"),
    ("backend: 'python' platform: 'ensemble'", "must have platform type 'ensemble' and empty backend type"),
    ("name: 'M000' backend: 'identity'", "unexpected directory name"),
    ("platform: 'ensemble' dynamic_batching { }", "ensemble scheduling must be set for ensemble"),
    ("platform: 'ensemble' sequence_batching { }", "ensemble scheduling must be set for ensemble"),
];

/// Fields beside an input and an output.
const MORE: Rows = &[
    ("version_policy { specific { versions: -1 } }", "at least one version must be available"),
    ("version_policy { specific { versions: 0 } }", "at least one version must be available"),
    ("version_policy { specific { versions: [ 2, 3 ] } }", "at least one version must be available"),
    ("max_batch_size: -2", "'max_batch_size' must be non-negative value"),
    (
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 0 ] }",
        "preferred size must be positive",
    ),
    ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 9 ] }", "must be <= max batch size"),
    ("max_batch_size: 8 dynamic_batching { preferred_batch_size: 2147483647 }", "must be <= max batch size"),
    ("dynamic_batching { priority_levels: 1 }", "default priority level must be in range [1, 1]"),
    (
        "dynamic_batching { priority_levels: 1 default_priority_level: 2 }",
        "default priority level must be in range [1, 1]",
    ),
    (
        "dynamic_batching { priority_levels: 18446744073709551615 }",
        "default priority level must be in range [1, 18446744073709551615]",
    ),
    (
        "dynamic_batching { priority_levels: 3 default_priority_level: 1 preserve_ordering: true }",
        "Only one priority level is allowed",
    ),
    (
        "dynamic_batching { priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 5 } } preserve_ordering: true }",
        "can not have DELAY as timeout action",
    ),
    (
        "dynamic_batching { priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { timeout_action: 2 } } }",
        "has no value 2",
    ),
    (
        "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: [ 1, -1 ] } }",
        "preferred batch size must be positive",
    ),
    ("sequence_batching { oldest { preferred_batch_size: 1 } }", "must be <= max batch size"),
    ("sequence_batching { direct { minimum_slot_utilization: nan } }", "must be in range (0.0, 1.0]"),
    ("sequence_batching { direct { minimum_slot_utilization: inf } }", "must be in range (0.0, 1.0]"),
    ("sequence_batching { direct { minimum_slot_utilization: 1.001 } }", "must be in range (0.0, 1.0]"),
    ("sequence_batching { direct { minimum_slot_utilization: -0.001 } }", "must be in range (0.0, 1.0]"),
    (
        "sequence_batching { control_input { name: 'C' control { kind: 9 int32_false_true: [ 0, 1 ] } } }",
        "has no value 9",
    ),
    (
        "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } } }",
        "is specified for multiple control kinds",
    ),
    (
        "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1, 2 ] } } }",
        "must have exactly 2 entries",
    ),
    (
        "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] int32_false_true: 1 } } }",
        "specifies more than one from",
    ),
    ("response_cache { enable: true } sequence_batching { oldest { } }", "with sequence batching scheduler"),
    ("instance_group { kind: KIND_CPU gpus: [ 0, 1 ] }", "has kind KIND_CPU but specifies one or more GPUs"),
    ("instance_group { count: 1025 }", "has 1025 instances, more than the 1024 that it may have"),
    ("instance_group { count: 2147483647 }", "has 2147483647 instances, more than the 1024"),
    ("instance_group { count: 1000 } instance_group { count: 25 }", "has 1025 instances, more than the 1024"),
    (
        "max_batch_size: 2147483647 model_warmup { name: 'w' batch_size: 2147483647 inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }",
        "more than half of the memory of the server",
    ),
    ("instance_group { gpus: 0 }", "has kind KIND_CPU but specifies one or more GPUs"),
    ("instance_group { kind: -1 }", "has unknown kind -1"),
    ("instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU }", "server does not support GPUs"),
    ("instance_group { kind: KIND_MODEL profile: 'x' }", "only supported for TensorRT models"),
    ("instance_group { secondary_devices { kind: 3 } }", "has no value 3"),
    ("instance_group { name: 'a\\0b' }", "contains a NUL character"),
    ("instance_group { host_policy: 'a\\0b' }", "contains a NUL character"),
    ("instance_group { rate_limiter { resources { name: 'a\\0b' count: 1 } } }", "contains a NUL character"),
    ("input { name: 'A\\0B' data_type: TYPE_FP32 dims: 1 }", "contains a NUL character"),
    ("output { name: 'A\\0B' data_type: TYPE_FP32 dims: 1 }", "contains a NUL character"),
    ("input { name: 'X' data_type: 99 dims: 1 }", "model input 'X' must specify 'data_type'"),
    ("output { name: 'X' data_type: 99 dims: 1 }", "model output 'X' must specify 'data_type'"),
    ("input { name: 'X' data_type: TYPE_FP32 dims: 1 format: 9 }", "has no value 9"),
    ("input { name: 'X' data_type: TYPE_FP32 dims: [ 1, 0, 1 ] }", "dimension must be integer >= 1, or -1"),
    ("output { name: 'X' data_type: TYPE_FP32 dims: [ -1, -3 ] }", "dimension must be integer >= 1, or -1"),
    (
        "input { name: 'X' data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 7 ] } }",
        "has different size for dims and reshape",
    ),
    (
        "output { name: 'X' data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1, 3 ] } }",
        "has different size for dims and reshape",
    ),
    (
        "max_batch_size: 2 input { name: 'X' data_type: TYPE_FP32 dims: 2 reshape { } }",
        "has different size for dims and reshape",
    ),
    (
        "input { name: 'X' data_type: TYPE_FP32 dims: [ 4294967296, 4294967296 ] }",
        "exceeds maximum size of 9223372036854775807",
    ),
    (
        "batch_input { kind: BATCH_ITEM_SHAPE target_name: 'B' data_type: TYPE_INT32 }",
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0",
    ),
    (
        "batch_input { kind: BATCH_MAX_ELEMENT_COUNT_AS_SHAPE target_name: 'B' data_type: TYPE_INT64 source_input: 'IN' }",
        "must be TYPE_INT32 or TYPE_FP32",
    ),
    (
        "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'B' source_input: 'IN' }",
        "must be TYPE_INT32 or TYPE_FP32",
    ),
    ("batch_output { target_name: 'OUT' source_input: [ 'IN', 'IN' ] }", "expects 1 source input, got 2"),
    (
        "batch_output { target_name: 'OUT' source_input: 'IN' } batch_output { target_name: 'OUT' source_input: 'IN' }",
        "can only be specified once",
    ),
    (
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: [ 1, 1 ] } } }",
        "ascending 'buckets'",
    ),
    (
        "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: [ 1, nan ] } } }",
        "ascending 'buckets'",
    ),
    ("default_model_filename: '../1/../../x'", "is outside model directory"),
    (
        "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: '/labels.txt' }",
        "is outside model directory",
    ),
    (
        "output { name: 'L' data_type: TYPE_FP32 dims: 1 label_filename: 'a/../../labels.txt' }",
        "is outside model directory",
    ),
    ("model_repository_agents { agents { name: 'checksum' } }", "checksum"),
];

/// Parameters that the server reads.
const PARAMETERS: &[(&[(&str, &str)], &str)] = &[
    (&[("CACHE_TTL_SECONDS", "0")], "which is no positive number of seconds"),
    (&[("CACHE_TTL_SECONDS", "-1")], "which is no positive number of seconds"),
    (&[("CACHE_TTL_SECONDS", "")], "which is no positive number of seconds"),
    (&[("CACHE_TTL_SECONDS", "nan")], "which is no positive number of seconds"),
    (&[("CACHE_TTL_SECONDS", "1e99")], "which is no positive number of seconds"),
    (&[("CACHE_TTL_SECONDS", "5"), ("CACHE_STALE_SECONDS", "-5")], "which is no positive number of seconds"),
    (&[("CACHE_MAX_ANSWER_BYTES", "0")], "which is no number from 1"),
    (&[("CACHE_MAX_ANSWER_BYTES", "1MB")], "which is no number from 1"),
    (&[("CACHE_QUOTA_BYTES", "-1")], "which is no number from 1"),
    (&[("CACHE_QUOTA_BYTES", "")], "which is no number from 1"),
    (&[("CACHE_DECOUPLED", "TRUE")], "neither 'true' nor 'false'"),
    (&[("CACHE_DECOUPLED", "1")], "neither 'true' nor 'false'"),
    (&[("MAX_UNREAD_RESPONSES", "-1")], "which is no number from 1"),
    (&[("MAX_UNREAD_RESPONSES", "many")], "which is no number from 1"),
    (&[("MEMORY_PINNED", "yes")], "neither 'true' nor 'false'"),
    (&[("MEMORY_PRIORITY", "1001")], "which is no number from 0 to 1000"),
    (&[("MEMORY_PRIORITY", "-1")], "which is no number from 0 to 1000"),
    (&[("TRITON_BATCH_STRATEGY_PATH", "")], "must be non-empty"),
    (&[("TRITON_BATCH_STRATEGY_PATH", "/usr/lib/s.so")], "Batching library path escapes model repository"),
];

/// Implicit states.
const STATES: Rows = &[
    ("output_name: 'T' data_type: TYPE_FP32 dims: 1", "input_name' of model 'm"),
    ("input_name: 'S' data_type: TYPE_FP32 dims: 1", "output_name' of model 'm"),
    ("input_name: 'S' output_name: 'T' dims: 1", "must be given"),
    ("input_name: 'S' output_name: 'T' data_type: 77 dims: 1", "has no value 77"),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP32",
        "must be given for a model without a batch dimension",
    ),
    ("input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: -2", "must not be negative, except -1"),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP64 dims: [ 4294967296, 1073741824 ]",
        "has more elements than fit in memory",
    ),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: [ 99999999999999, -1 ]",
        "takes 399999999999996 bytes, more than half of the memory of the server",
    ),
    ("input_name: 'S\\0' output_name: 'T' data_type: TYPE_FP32 dims: 1", "contains a NUL character"),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'a' data_type: TYPE_FP32 dims: 1 zero_data: true } initial_state { name: 'b' data_type: TYPE_FP32 dims: 1 zero_data: true }",
        "must contain exactly one or zero element. Found '2' elements.",
    ),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: [ 2, -1 ] initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 3, 4 ] zero_data: true }",
        "doesn't match 'state' dim description. 3 != 2",
    ),
    (
        "input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 initial_state { name: 'i' data_type: TYPE_FP32 zero_data: true }",
        "0 != 1",
    ),
];

/// What a sample for warm-up may say of its inputs.
const SAMPLES: Rows = &[
    ("inputs { key: 'IN' value { dims: 1 zero_data: true } }", "must be given"),
    ("inputs { key: 'IN' value { data_type: 55 dims: 1 zero_data: true } }", "has no value 55"),
    ("inputs { key: 'IN' value { data_type: TYPE_INT32 dims: -2 zero_data: true } }", "must not be negative"),
    (
        "inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 4611686018427387904 zero_data: true } }",
        "has more elements than fit in memory",
    ),
    (
        "inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 99999999999999 zero_data: true } }",
        "takes 400000000004092 bytes, more than half of the memory of the server",
    ),
    (
        "inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 99999999999999 random_data: true } }",
        "takes 400000000004092 bytes, more than half of the memory of the server",
    ),
    ("inputs { key: '' value { data_type: TYPE_INT32 dims: 1 zero_data: true } }", "must be given"),
    ("inputs { key: 'IN' value { data_type: TYPE_FP32 dims: 1 zero_data: true } }", "IN"),
    ("inputs { key: 'IN' value { data_type: TYPE_INT32 dims: [ 1, 1 ] random_data: true } }", "IN"),
    (
        "inputs { key: 'IN' value { data_type: TYPE_INT32 dims: 1 input_data_file: '/etc/hostname' } }",
        "is outside model directory",
    ),
];
