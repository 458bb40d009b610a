//! Tests of contradictions between graph, configuration and settings, with the texts that clients know.
use std::fs;

use vocabulary::DataType;

use crate::{
    graph::Graph,
    support::{Model, backend},
};

const X: &str = "input { name: 'X' data_type: TYPE_FP32 dims: 2 }";
const Y: &str = "output { name: 'Y' data_type: TYPE_FP32 dims: 2 }";

fn negation(dims: &[i64]) -> Graph {
    Graph::unary("Neg", DataType::Fp32, dims)
}

fn refused(graph: Graph, config: &str, text: &str) {
    assert_eq!(Model::new(graph, config).refusal(), text);
}

#[test]
fn a_missing_file() {
    let model = Model::new(negation(&[-1, 2]), "backend: 'onnxruntime'");
    let file = model.version_directory().join("model.onnx");
    fs::remove_file(&file).unwrap();
    let text = format!("Unavailable: unable to find '{}' for model instance 'model'", file.display());
    assert_eq!(model.refusal(), text);
}

#[test]
fn a_file_that_is_no_graph() {
    let model = Model::new(negation(&[-1, 2]), "");
    fs::write(model.version_directory().join("model.onnx"), "not a graph").unwrap();
    let refusal = model.refusal();
    assert!(refusal.starts_with("Internal: onnx runtime error 7: "), "{refusal}");
}

#[test]
fn a_batch_size_for_a_graph_that_cannot_batch() {
    refused(
        negation(&[1, 2]),
        "max_batch_size: 4",
        "Invalid argument: autofill failed for model 'model': model does not support batching while non-zero \
         max_batch_size is specified: 'X' has shape [1,2], and its first dimension is not open. Set max_batch_size to 0",
    );
}

#[test]
fn an_output_that_is_no_tensor() {
    let graph = negation(&[-1, 2]).sequence_output("S", DataType::Fp32, &[-1, 2]).node(
        "SequenceConstruct",
        &["Y"],
        &["S"],
    );
    refused(
        graph,
        "",
        "Unsupported: Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'S', expected 'ONNX_TYPE_TENSOR'.",
    );
}

#[test]
fn a_wrong_number_of_inputs() {
    let two = format!("max_batch_size: 4 {X} input {{ name: 'W' data_type: TYPE_FP32 dims: 2 }} {Y}");
    refused(
        negation(&[-1, 2]),
        &two,
        "Invalid argument: unable to load model 'model', configuration expects 2 inputs, model provides 1",
    );
}

#[test]
fn names_that_the_graph_lacks() {
    refused(
        negation(&[-1, 2]),
        &format!("max_batch_size: 4 input {{ name: 'W' data_type: TYPE_FP32 dims: 2 }} {Y}"),
        "Invalid argument: unexpected inference input 'W', allowed inputs are: X",
    );
    let graph = negation(&[-1, 2]).output("A", DataType::Fp32, &[-1, 2]).node("Abs", &["X"], &["A"]);
    refused(
        graph,
        &format!("max_batch_size: 4 {X} output {{ name: 'W' data_type: TYPE_FP32 dims: 2 }}"),
        "Invalid argument: unexpected inference output 'W', allowed outputs are: A, Y",
    );
}

#[test]
fn datatypes_that_differ_from_the_graph() {
    refused(
        negation(&[-1, 2]),
        &format!("max_batch_size: 4 input {{ name: 'X' data_type: TYPE_INT32 dims: 2 }} {Y}"),
        "Invalid argument: unable to load model 'model', configuration expects datatype TYPE_INT32 for input 'X', model \
         provides TYPE_FP32",
    );
    refused(
        Graph::unary("Identity", DataType::Bytes, &[-1, 2]),
        &format!("max_batch_size: 4 input {{ name: 'X' data_type: TYPE_STRING dims: 2 }} {Y}"),
        "Invalid argument: unable to load model 'model', configuration expects datatype TYPE_FP32 for output 'Y', model \
         provides TYPE_BYTES",
    );
}

#[test]
fn dims_that_differ_from_the_graph() {
    refused(
        negation(&[-1, 2]),
        &format!("max_batch_size: 4 input {{ name: 'X' data_type: TYPE_FP32 dims: 3 }} {Y}"),
        "Invalid argument: model 'model', tensor 'X': the model expects 2 dimensions (shape [-1,2]) but the model \
         configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the \
         explicit tensor shape, making complete shape [-1,3])",
    );
    refused(
        negation(&[4, 2]),
        &format!("{X} {Y}"),
        "Invalid argument: model 'model', tensor 'X': the model expects 2 dimensions (shape [4,2]) but the model \
         configuration specifies 1 dimensions (shape [2])",
    );
    refused(
        negation(&[4, 2]),
        &format!("max_batch_size: 4 {X} {Y}"),
        "Invalid argument: model 'model', tensor 'X': for the model to support batching the shape should have at least 1 \
         dimension and the first dimension must be -1; but shape expected by the model is [4,2]",
    );
}

#[test]
fn an_open_dim_for_a_fixed_one() {
    refused(
        negation(&[-1, 2]),
        &format!("max_batch_size: 4 input {{ name: 'X' data_type: TYPE_FP32 dims: -1 }} {Y}"),
        "Invalid argument: model 'model', tensor 'X': the model expects 2 dimensions (shape [-1,2]) but the model \
         configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the \
         explicit tensor shape, making complete shape [-1,-1])",
    );
    // An input may narrow what the graph leaves open, an output may not.
    refused(
        negation(&[-1, -1]),
        &format!("max_batch_size: 4 {X} {Y}"),
        "Invalid argument: model 'model', tensor 'Y': the model expects 2 dimensions (shape [-1,-1]) but the model \
         configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the \
         explicit tensor shape, making complete shape [-1,2])",
    );
}

#[test]
fn dims_for_a_scalar() {
    refused(
        negation(&[]),
        &format!("{X} {Y}"),
        "Invalid argument: unable to load model 'model', scalar tensor 'X', should only provide 1 in the model \
         configuration when the model doesn't support batching. Model configuration provided: [2].",
    );
}

#[test]
fn optional_inputs_of_a_batching_model() {
    refused(
        negation(&[-1, 2]).input("B", DataType::Fp32, &[-1, 2]).initializer(
            "B",
            DataType::Fp32,
            &[1, 2],
            &[0; 8],
        ),
        &format!(
            "max_batch_size: 4 {X} input {{ name: 'B' data_type: TYPE_FP32 dims: 2 optional: true }} {Y}"
        ),
        "Invalid argument: unable to load model 'model', optional input 'B' is not supported for models that support \
         batching",
    );
}

#[test]
fn ragged_inputs_that_are_no_row() {
    let input = "input { name: 'X' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }";
    refused(
        negation(&[-1, 2]),
        &format!("max_batch_size: 4 {input} {Y}"),
        "Invalid argument: unable to load model 'model', configuration expects model provides input with shape [-1]  for \
         ragged input 'X', model provides [-1,2]",
    );
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1])
        .output("Y", DataType::Fp32, &[2])
        .initializer("X", DataType::Fp32, &[2], &[0; 8])
        .node("Neg", &["X"], &["Y"]);
    let input = "input { name: 'X' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true optional: true }";
    refused(
        graph,
        &format!("{input} {Y}"),
        "Invalid argument: unable to load model 'model', configuration expects model provides input with shape [-1] for \
         ragged input 'X', which is not supported for optional input",
    );
}

#[test]
fn settings_that_cannot_be_meant() {
    let cases = [
        (
            parameter("execution_mode", "2"),
            "Invalid argument: Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but \
             got 2 .",
        ),
        (parameter("enable_mem_arena", "maybe"), "Invalid argument: failed to convert 'maybe' to boolean"),
        (parameter("enable_mem_pattern", "2"), "Invalid argument: failed to convert '2' to boolean"),
        (
            parameter("intra_op_thread_count", "two"),
            "Invalid argument: failed to convert 'two' to integral number",
        ),
        (parameter("MAP_EXTERNAL_DATA", "maybe"), "Invalid argument: failed to convert 'maybe' to boolean"),
        (ACCELERATOR.to_owned(), "Invalid argument: unknown Execution Accelerator 'openvino' is requested"),
    ];
    for (config, text) in cases {
        refused(negation(&[-1, 2]), &config, text);
    }
}

const ACCELERATOR: &str =
    "optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }";

fn parameter(key: &str, value: &str) -> String {
    format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}")
}

#[test]
fn all_settings_that_are_refused_are_told_with_their_fields() {
    let refused = [("execution_mode", "2"), ("intra_op_thread_count", "many"), ("enable_mem_arena", "yes")];
    let parameters: String = refused.iter().map(|(key, value)| parameter(key, value)).collect();
    let config = format!("backend: 'onnxruntime' {ACCELERATOR} {parameters}");
    let problems = Model::new(negation(&[-1, 2]), &config).problems(&backend()).unwrap();
    let fields: Vec<_> = problems.problems().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "optimization.execution_accelerators.cpu_execution_accelerator[0].name",
            "parameters.execution_mode",
            "parameters.intra_op_thread_count",
            "parameters.enable_mem_arena",
        ]
    );
}

#[test]
fn a_model_file_outside_the_version_directory() {
    let model = Model::new(
        negation(&[-1, 2]),
        "backend: 'onnxruntime' default_model_filename: '../../other/1/model.onnx'",
    );
    assert!(model.refusal().starts_with("Unsupported: "));
}

/// The negation with a control and a state, and a configuration of both.
fn with_state(control: &[i64], state: &[i64], of: &str) -> (Graph, String) {
    let graph = negation(&[-1, 2])
        .input("START", DataType::Fp32, control)
        .input("S", DataType::Fp32, state)
        .output("NEXT", DataType::Fp32, state)
        .node("Abs", &["S"], &["NEXT"]);
    let config = format!(
        "max_batch_size: 4 {X} {Y} sequence_batching {{
            control_input {{ name: 'START' control {{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }} }}
            state {{ {of} }}
        }}"
    );
    (graph, config)
}

const STATE: &str = "input_name: 'S' output_name: 'NEXT' data_type: TYPE_FP32 dims: 2";

#[test]
fn controls_that_differ_from_the_graph() {
    let (graph, config) = with_state(&[-1, 1], &[-1, 2], STATE);
    refused(
        graph,
        &config.replace("'START'", "'BEGIN'"),
        "Internal: configuration specified sequence control 'BEGIN', but model does not provide that input",
    );
    let (graph, config) = with_state(&[-1, 3], &[-1, 2], STATE);
    refused(
        graph,
        &config,
        "Invalid argument: unable to load model 'model', sequence control 'START' in model has dims [3] but dims [1] is \
         expected",
    );
    let (graph, config) = with_state(&[-1, 1], &[-1, 2], STATE);
    refused(
        graph,
        &config.replace("fp32_false_true", "int32_false_true"),
        "Invalid argument: unable to load model 'model', sequence control 'START', the model expects data-type FLOAT but \
         the model configuration specifies data-type TYPE_INT32",
    );
    let (graph, config) = with_state(&[4, 1], &[-1, 2], STATE);
    refused(
        graph,
        &config,
        "Invalid argument: model 'model', tensor 'START': for the model to support batching the shape should have at \
         least 1 dimension and the first dimension must be -1; but shape expected by the model is [4,1]",
    );
}

#[test]
fn controls_and_states_count_as_inputs() {
    let (graph, config) = with_state(&[-1, 1], &[-1, 2], STATE);
    let input = "input { name: 'W' data_type: TYPE_FP32 dims: 2 }";
    refused(
        graph,
        &format!("{config} {input}"),
        "Invalid argument: unable to load model 'model', configuration expects 4 inputs, model provides 3",
    );
}

#[test]
fn states_that_differ_from_the_graph() {
    let cases = [
        (STATE.replace("'S'", "'T'"), "unexpected inference input 'T', allowed inputs are: S, START, X"),
        (
            STATE.replace("'NEXT'", "'LAST'"),
            "unexpected inference output 'LAST', allowed outputs are: NEXT, Y",
        ),
        (
            STATE.replace("FP32", "FP64"),
            "unable to load model 'model', configuration expects datatype TYPE_FP64 for input 'S', model provides \
             TYPE_FP32",
        ),
        (
            STATE.replace("dims: 2", "dims: 3"),
            "model 'model', tensor 'S': the model expects 2 dimensions (shape [-1,2]) but the model configuration \
             specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit \
             tensor shape, making complete shape [-1,3])",
        ),
    ];
    for (of, text) in cases {
        let (graph, config) = with_state(&[-1, 1], &[-1, 2], &of);
        refused(graph, &config, &format!("Invalid argument: {text}"));
    }
    let (graph, config) = with_state(&[-1, 1], &[], &STATE.replace("dims: 2", "dims: 1"));
    refused(
        graph,
        &config,
        "Invalid argument: model 'model', tensor 'S': for the model to support batching the shape should have at least 1 \
         dimension and the first dimension must be -1; but shape expected by the model is []",
    );
}
