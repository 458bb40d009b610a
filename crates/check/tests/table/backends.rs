//! The rules of the backends `image` and `onnxruntime`.
use super::Row;

/// The name of the file that a version of a model of ONNX Runtime has.
pub(crate) const GRAPH_FILE: &str = "model.onnx";

const PICTURE: &str = "input { name: 'P' data_type: TYPE_STRING dims: 1 }";
const PIXELS: &str = "output { name: 'O' data_type: TYPE_FP32 dims: [ 4, 5, 3 ] }";

/// Models that decode pictures.
pub(super) fn pictures() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add =
        |text: String, refusal: &str| rows.push(Row::new(format!("backend: 'image' {text}"), refusal));
    add(format!("{PICTURE} {PIXELS}"), "");
    add(PIXELS.to_owned(), "must have one input, but it has 0");
    add(PICTURE.to_owned(), "must have one output, but it has 0");
    add(format!("{PICTURE} {} {PIXELS}", PICTURE.replace("'P'", "'Q'")), "but it has 2");
    add(format!("{PICTURE} {PIXELS} {}", PIXELS.replace("'O'", "'Q'")), "must have one output, but it has 2");
    add(format!("{PICTURE} {PIXELS} sequence_batching {{ }}"), "must not have sequence_batching");
    for (from, to, refusal) in [
        ("TYPE_STRING", "TYPE_UINT8", "must have an input of TYPE_STRING with dims [1]"),
        ("dims: 1", "dims: -1", "must have an input of TYPE_STRING with dims [1]"),
        ("dims: 1", "dims: [ 1, 1 ]", "must have an input of TYPE_STRING with dims [1]"),
        ("dims: 1", "dims: 1 optional: true", "must not have an optional input"),
        ("TYPE_FP32", "TYPE_FP16", "must have an output of TYPE_UINT8 or TYPE_FP32"),
        ("TYPE_FP32", "TYPE_INT8", "must have an output of TYPE_UINT8 or TYPE_FP32"),
        ("4, 5, 3", "4, 5", "must have an output with dims [H, W, C] or [C, H, W]"),
        ("4, 5, 3", "4, 5, 4", "must have an output with dims [H, W, C] or [C, H, W]"),
        ("4, 5, 3", "-1, 5, 3", "must have an output with dims [H, W, C] or [C, H, W]"),
        ("4, 5, 3", "65536, 5, 3", "must have an output with dims [H, W, C] or [C, H, W]"),
    ] {
        add(format!("{PICTURE} {PIXELS}").replace(from, to), refusal);
    }
    for (key, value, refusal) in [
        ("RESIZE", "fit", "must be stretch, crop or pad; it is 'fit'"),
        ("MAX_PIXELS", "0", "must be a whole number from 1; it is '0'"),
        ("MAX_PIXELS", "1e6", "must be a whole number from 1; it is '1e6'"),
        ("MAX_PIXELS", "19", "must not have an output of more pixels than parameter 'MAX_PIXELS' allows"),
        ("SCALE", "x", "must be a finite number; it is 'x'"),
        ("SCALE", "inf", "must be a finite number; it is 'inf'"),
        ("MEAN", "1,2", "must be one finite number, or 3 that are separated by commas"),
        ("STD", "1,0,1", "must not be zero"),
        ("STD", "", "must be one finite number, or 3 that are separated by commas"),
    ] {
        let parameter = format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}");
        add(format!("{PICTURE} {PIXELS} {parameter}"), refusal);
    }
    let bytes = PIXELS.replace("FP32", "UINT8");
    let mean = "parameters { key: 'MEAN' value { string_value: '1' } }";
    add(format!("{PICTURE} {bytes} {mean}"), "is for outputs of TYPE_FP32 only");
    rows
}

/// What is replaced in a good configuration, by what, and the refusal.
const CHANGES: &[(&str, &str, &str)] = &[
    ("'X'", "'Z'", "unexpected inference input 'Z', allowed inputs are: X"),
    ("'Y'", "'Z'", "unexpected inference output 'Z', allowed outputs are: Y"),
    ("'X' data_type: TYPE_FP32", "'X' data_type: TYPE_INT64", "datatype TYPE_INT64 for input 'X'"),
    ("'X' data_type: TYPE_FP32", "'X' data_type: TYPE_STRING", "datatype TYPE_STRING for input 'X'"),
    ("'Y' data_type: TYPE_FP32", "'Y' data_type: TYPE_FP64", "datatype TYPE_FP64 for output 'Y'"),
    (
        "'Y' data_type: TYPE_FP32 dims: 16",
        "'Y' data_type: TYPE_FP32 dims: 17",
        "making complete shape [-1,17]",
    ),
    ("'X' data_type: TYPE_FP32 dims: 16", "'X' data_type: TYPE_FP32 dims: 8", "making complete shape [-1,8]"),
    (
        "'X' data_type: TYPE_FP32 dims: 16",
        "'X' data_type: TYPE_FP32 dims: [ 4, 4 ]",
        "making complete shape [-1,4,4]",
    ),
    ("max_batch_size: 4", "max_batch_size: 0", "specifies 1 dimensions (shape [16])"),
    (
        "dims: 16 } output",
        "dims: 16 optional: true } output",
        "configuration expects 0 inputs, model provides 1",
    ),
    ("dims: 16 } output", "dims: 16 allow_ragged_batch: true } output", "for ragged input 'X'"),
    (
        "dims: 16 } output",
        "dims: 16 } input { name: 'W' data_type: TYPE_FP32 dims: 1 } output",
        "configuration expects 2 inputs, model provides 1",
    ),
];

/// What is added to a good configuration.
const ADDITIONS: &[(&str, &str)] = &[
    (
        "sequence_batching { control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }",
        "configuration specified sequence control 'START', but model does not provide that input",
    ),
    (
        "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 dims: 1 } }",
        "configuration expects 2 inputs, model provides 1",
    ),
    ("default_model_filename: 'other.onnx'", "is already set on line 1"),
];

/// Parameters for the runtime.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("execution_mode", "2", "Expected values for  execution_mode are 0 or 1 but got 2 ."),
    ("execution_mode", "parallel", "failed to convert 'parallel' to integral number"),
    ("intra_op_thread_count", "all", "failed to convert 'all' to integral number"),
    ("inter_op_thread_count", "", "failed to convert '' to integral number"),
    ("enable_mem_arena", "maybe", "failed to convert 'maybe' to boolean"),
    ("MAP_EXTERNAL_DATA", "yes", "failed to convert 'yes' to boolean"),
    ("session.set_denormal_as_zero", "a\\0b", "has a NUL inside"),
];

/// Models with the graph of [`graph`].
pub(super) fn graphs() -> Vec<Row> {
    let good = "max_batch_size: 4 input { name: 'X' data_type: TYPE_FP32 dims: 16 } output { name: 'Y' data_type: TYPE_FP32 dims: 16 }";
    let mut rows = Vec::new();
    let mut add = |text: String, refusal: &str| {
        rows.push(Row::new(
            format!("backend: 'onnxruntime' default_model_filename: '{GRAPH_FILE}' {text}"),
            refusal,
        ));
    };
    add(good.to_owned(), "");
    for (from, to, refusal) in CHANGES {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "'{from}' is part of the configuration");
        add(text, refusal);
    }
    for (more, refusal) in ADDITIONS {
        add(format!("{good} {more}"), refusal);
    }
    for (key, value, refusal) in OPTIONS {
        let parameter = format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}");
        add(format!("{good} {parameter}"), refusal);
    }
    add(
        format!(
            "{good} optimization {{ execution_accelerators {{ cpu_execution_accelerator {{ name: 'openvino' }} }} }}"
        ),
        "unknown Execution Accelerator 'openvino' is requested",
    );
    add(
        format!("{good} model_operations {{ op_library_filename: 'missing.so' }}"),
        "unable to find custom op library",
    );
    rows
}

/// The bytes of a graph that copies its input X to its output Y, both FP32 `[N, 16]`.
pub(crate) fn graph() -> Vec<u8> {
    let field = |number: u8, content: &[u8]| -> Vec<u8> {
        assert!(number < 16 && content.len() < 128, "the lengths fit one byte");
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap_or_default()], content].concat()
    };
    let dims = [field(1, &field(2, b"N")), field(1, &[8, 16])].concat();
    let tensor = field(2, &field(1, &[&[8, 1][..], &field(2, &dims)].concat()));
    let value = |name: &str| [field(1, name.as_bytes()), tensor.clone()].concat();
    let node = [field(1, b"X"), field(2, b"Y"), field(4, b"Identity")].concat();
    let graph = [field(1, &node), field(2, b"g"), field(11, &value("X")), field(12, &value("Y"))].concat();
    // The version of the format, the graph, the version of the operators.
    [&[8, 8][..], &field(7, &graph), &field(8, &[16, 13])].concat()
}
