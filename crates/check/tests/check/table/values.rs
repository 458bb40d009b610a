//! Mistakes of the text: values of another type than their field, names that the schema does not have, fields that are
//! set twice.
use super::Row;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (fields, values, wanted) in TYPES {
        for (before, field) in *fields {
            for value in *values {
                let closing = " }".repeat(before.matches('{').count());
                let text = format!("{before} {field}: {value}{closing}");
                rows.push(Row::of_identity(&text, &format!("expected {wanted} for '{field}'")));
            }
        }
    }
    for (field, value) in MESSAGES {
        rows.push(Row::of_identity(&format!("{field}: {value}"), &format!("expected '{{' after '{field}'")));
    }
    for (before, name, message, meant) in NAMES {
        let closing = " }".repeat(before.matches('{').count());
        let hint = format!("'{name}' is not a field of {message}, did you mean '{meant}'?");
        rows.push(Row::of_identity(&format!("{before} {name}: 1{closing}"), &hint));
    }
    for (before, value, values) in ENUMERATIONS {
        let closing = " }".repeat(before.matches('{').count());
        let wanted = format!("'{value}' is not a value of {values}");
        rows.push(Row::of_identity(&format!("{before} {value}{closing}"), &wanted));
    }
    for (text, meant) in WORDS {
        rows.push(Row::of_identity(text, &format!("did you mean '{meant}'?")));
    }
    for (text, first) in TWICE {
        rows.push(Row::of_identity(text, &format!("'{first}' is already set on line 1")));
    }
    for (text, excluded) in EXCLUDED {
        rows.push(Row::of_identity(text, &format!("excludes '{excluded}' of line 1")));
    }
    rows.extend(SYNTAX.iter().map(|(text, refusal)| Row::of_identity(text, refusal)));
    rows
}

/// Where a field stands, and its name.
type Fields = &'static [(&'static str, &'static str)];

/// Fields of one type, values that the type does not have, and the name of the type.
const TYPES: &[(Fields, &[&str], &str)] = &[
    (
        &[
            ("instance_group {", "count"),
            ("instance_group {", "gpus"),
            ("dynamic_batching {", "preferred_batch_size"),
            ("optimization { graph {", "level"),
            ("sequence_batching { oldest {", "max_candidate_sequences"),
            ("optimization { cuda { graph_spec {", "batch_size"),
        ],
        &["1.5", "'1'", "2147483648", "true"],
        "a 32-bit integer",
    ),
    (
        &[
            ("version_policy { latest {", "num_versions"),
            ("model_warmup {", "batch_size"),
            ("model_warmup {", "count"),
            ("dynamic_batching { default_queue_policy {", "max_queue_size"),
            ("instance_group { rate_limiter {", "priority"),
            ("optimization {", "gather_kernel_buffer_threshold"),
        ],
        &["-1", "4294967296", "1e3"],
        "a 32-bit integer that is not negative",
    ),
    (
        &[
            ("dynamic_batching {", "max_queue_delay_microseconds"),
            ("dynamic_batching {", "priority_levels"),
            ("sequence_batching {", "max_sequence_idle_microseconds"),
            ("dynamic_batching { default_queue_policy {", "default_timeout_microseconds"),
        ],
        &["-1", "18446744073709551616", "0.5"],
        "a 64-bit integer that is not negative",
    ),
    (
        &[
            ("input {", "dims"),
            ("version_policy { specific {", "versions"),
            ("ensemble_scheduling { step {", "model_version"),
        ],
        &["9223372036854775808", "1.0", "'1'"],
        "a 64-bit integer",
    ),
    (
        &[
            ("dynamic_batching {", "preserve_ordering"),
            ("model_transaction_policy {", "decoupled"),
            ("response_cache {", "enable"),
            ("sequence_batching {", "iterative_sequence"),
            ("instance_group {", "passive"),
            ("input {", "allow_ragged_batch"),
        ],
        &["2", "TRUE", "'true'", "on"],
        "true or false",
    ),
    (
        &[
            ("", "default_model_filename"),
            ("input {", "name"),
            ("output {", "label_filename"),
            ("instance_group {", "host_policy"),
            ("model_warmup {", "name"),
            ("ensemble_scheduling { step {", "model_name"),
        ],
        &["word", "7"],
        "a string in quotes",
    ),
    (
        &[
            ("sequence_batching { direct {", "minimum_slot_utilization"),
            ("sequence_batching { control_input { control {", "fp32_false_true"),
        ],
        &["'0.5'", "half"],
        "a number",
    ),
];

/// Messages with a single value.
const MESSAGES: Fields = &[
    ("dynamic_batching", "true"),
    ("version_policy", "1"),
    ("instance_group", "2"),
    ("input", "'IN'"),
    ("optimization", "1"),
    ("response_cache", "true"),
    ("model_warmup", "'w'"),
    ("sequence_batching", "true"),
];

/// Names that the schema does not have: where they stand, the message, and the name that is meant.
const NAMES: &[(&str, &str, &str, &str)] = &[
    ("input {", "nam", "ModelInput", "name"),
    ("input {", "datatype", "ModelInput", "data_type"),
    ("input {", "allow_raged_batch", "ModelInput", "allow_ragged_batch"),
    ("output {", "dim", "ModelOutput", "dims"),
    ("output {", "label_filenam", "ModelOutput", "label_filename"),
    ("instance_group {", "cuont", "ModelInstanceGroup", "count"),
    ("instance_group {", "gpu", "ModelInstanceGroup", "gpus"),
    ("instance_group {", "host_polcy", "ModelInstanceGroup", "host_policy"),
    (
        "dynamic_batching {",
        "max_queue_delay_microsecond",
        "ModelDynamicBatching",
        "max_queue_delay_microseconds",
    ),
    ("dynamic_batching {", "priority_level", "ModelDynamicBatching", "priority_levels"),
    ("dynamic_batching {", "preserve_order", "ModelDynamicBatching", "preserve_ordering"),
    ("sequence_batching {", "control_inputs", "ModelSequenceBatching", "control_input"),
    ("sequence_batching {", "iterative_sequences", "ModelSequenceBatching", "iterative_sequence"),
    ("sequence_batching { oldest {", "max_candidate_sequence", "StrategyOldest", "max_candidate_sequences"),
    (
        "sequence_batching { direct {",
        "minimum_slot_utilisation",
        "StrategyDirect",
        "minimum_slot_utilization",
    ),
    ("sequence_batching { state {", "inputname", "State", "input_name"),
    ("version_policy { latest {", "num_version", "Latest", "num_versions"),
    ("version_policy { specific {", "version", "Specific", "versions"),
    ("model_warmup {", "batchsize", "ModelWarmup", "batch_size"),
    ("model_transaction_policy {", "decouple", "ModelTransactionPolicy", "decoupled"),
    ("response_cache {", "enabled", "ModelResponseCache", "enable"),
    ("optimization {", "input_pinned_mem", "ModelOptimizationPolicy", "input_pinned_memory"),
    ("ensemble_scheduling {", "steps", "ModelEnsembling", "step"),
    ("ensemble_scheduling { step {", "modelname", "Step", "model_name"),
    ("model_metrics {", "metric_controls", "ModelMetrics", "metric_control"),
    ("batch_input {", "target_nam", "BatchInput", "target_name"),
    ("batch_output {", "source_inputs", "BatchOutput", "source_input"),
    ("", "max_batch_sizes", "ModelConfig", "max_batch_size"),
    ("", "intput", "ModelConfig", "input"),
    ("", "instance_groups", "ModelConfig", "instance_group"),
];

/// Words of other programs: where they stand, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("max_batch: 4", "max_batch_size"),
    ("batch_size: 4", "max_batch_size"),
    ("warmup { name: 'w' }", "model_warmup"),
    ("decoupled: true", "model_transaction_policy { decoupled: true }"),
    ("input { dtype: TYPE_FP32 }", "data_type"),
    ("input { shape: 4 }", "dims"),
    ("output { shape: [ 4, 4 ] }", "dims"),
    ("output { label_file: 'labels.txt' }", "label_filename"),
    ("input { allow_ragged: true }", "allow_ragged_batch"),
    ("dynamic_batching { max_queue_delay_ms: 5 }", "max_queue_delay_microseconds"),
    ("dynamic_batching { max_queue_delay_us: 5 }", "max_queue_delay_microseconds"),
    ("input { data_type: INT32 }", "TYPE_INT32"),
    ("input { data_type: FP32 }", "TYPE_FP32"),
    ("input { data_type: BYTES }", "TYPE_STRING"),
    ("input { data_type: TYPE_BYTES }", "TYPE_STRING"),
    ("input { data_type: TYPE_FLOAT32 }", "TYPE_FP32"),
    ("input { data_type: TYPE_DOUBLE }", "TYPE_FP64"),
    ("instance_group { kind: GPU }", "KIND_GPU"),
    ("instance_group { kind: cpu }", "KIND_CPU"),
    ("parameters { key: 'a' value: 'b' }", "value: { string_value: 'b' }"),
    ("parameters { key: 'a' value: \"b\" }", "value: { string_value: \"b\" }"),
    ("model_transaction_policy: true", "model_transaction_policy: { decoupled: true }"),
];

/// Values that an enumeration does not have.
const ENUMERATIONS: &[(&str, &str, &str)] = &[
    ("input { data_type:", "TYPE_INT", "DataType"),
    ("output { data_type:", "TYPE_BYTE", "DataType"),
    ("input { format:", "FORMAT_NWHC", "Format"),
    ("instance_group { kind:", "KIND_TPU", "Kind"),
    ("dynamic_batching { default_queue_policy { timeout_action:", "DROP", "TimeoutAction"),
    ("optimization { priority:", "PRIORITY_HIGH", "ModelPriority"),
    ("batch_input { kind:", "BATCH_ITEMS", "Kind"),
    ("batch_output { kind:", "BATCH_GATHER", "Kind"),
    ("sequence_batching { control_input { control { kind:", "CONTROL_SEQUENCE_BEGIN", "Kind"),
    ("instance_group { secondary_devices { kind:", "KIND_DLA", "SecondaryDeviceKind"),
];

/// Fields that are set twice.
const TWICE: Fields = &[
    ("max_batch_size: 1 max_batch_size: 1", "max_batch_size"),
    ("dynamic_batching { } dynamic_batching { }", "dynamic_batching"),
    ("input { name: 'A' name: 'B' }", "name"),
    ("instance_group { kind: KIND_CPU kind: KIND_CPU }", "kind"),
    ("version_policy { all { } all { } }", "all"),
    ("parameters { key: 'a' key: 'b' }", "key"),
    ("optimization { graph { level: 1 } graph { level: 1 } }", "graph"),
];

/// Fields of which only one may be set.
const EXCLUDED: Fields = &[
    ("dynamic_batching { } ensemble_scheduling { }", "dynamic_batching"),
    ("ensemble_scheduling { } sequence_batching { }", "ensemble_scheduling"),
    ("version_policy { latest { num_versions: 1 } all { } }", "latest"),
    ("version_policy { all { } specific { versions: 1 } }", "all"),
    ("sequence_batching { direct { } oldest { } }", "direct"),
    ("model_warmup { inputs { key: 'IN' value { zero_data: true random_data: true } } }", "zero_data"),
    ("model_warmup { inputs { key: 'IN' value { random_data: true input_data_file: 'f' } } }", "random_data"),
    ("sequence_batching { state { initial_state { zero_data: true data_file: 'f' } } }", "zero_data"),
];

/// Text that is no text of protocol buffers.
const SYNTAX: Fields = &[
    ("max_batch_size: 0x", "'0x' must be followed by hexadecimal digits"),
    ("max_batch_size: 09", "may not contain 8 or 9"),
    ("max_batch_size: 4a", "'a' may not follow the number '4'"),
    ("max_batch_size: 1.2.3", "'.' may not follow the number '1.2'"),
    ("max_batch_size: 1e", "'e' must be followed by an exponent"),
    ("max_batch_size: [ 1 ]", "'max_batch_size' takes one value, not a list"),
    ("dynamic_batching [ { } ]", "'dynamic_batching' takes one value, not a list"),
    ("max_batch_size = 4", "expected ':' after 'max_batch_size', found '='"),
    ("max_batch_size:", "found the end of the file"),
    ("input { dims: [ 1 2 ] }", "expected ',' or ']' in the list 'dims'"),
    ("input { name: 'X' data_type: TYPE_FP32 dims: [ 1, 2 }", "expected ',' or ']' in the list 'dims'"),
    ("default_model_filename: 'a\\xZZ'", "must be followed by hexadecimal digits"),
    ("4", "expected the name of a field"),
    ("// a comment", "expected the name of a field"),
    ("ä: 1", "unexpected character"),
    ("dynamic_batching { >", "found '>'"),
];
