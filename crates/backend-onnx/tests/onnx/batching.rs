//! Tests of how requests become one run, and how its outputs become their responses.
use inference::Request;
use vocabulary::{DataType, ErrorCode, FailureReason};

use crate::{
    graph::{Attribute, Graph},
    support::{Loaded, Model, backend, bytes_of, floats, read_floats, request, shape_of, tensor},
};

fn doubling(config: &str) -> Loaded {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .output("Z", DataType::Fp32, &[-1, 2])
        .node("Add", &["X", "X"], &["Y"])
        .node("Neg", &["X"], &["Z"]);
    Model::new(graph, config).load(&backend()).unwrap()
}

#[test]
fn each_request_receives_its_own_rows() {
    let mut model = doubling("max_batch_size: 8");
    let inputs: [&[f32]; 3] = [&[1., 2.], &[3., 4., 5., 6., 7., 8.], &[9., 10., 11., 12.]];
    let requests = inputs.map(|values| request(vec![floats("X", &[values.len() as i64 / 2, 2], values)]));
    let answers = model.run(requests.into());
    for (answer, values) in answers.iter().zip(inputs) {
        let response = answer.as_ref().unwrap();
        assert_eq!(shape_of(response, "Y"), [values.len() as i64 / 2, 2]);
        assert_eq!(read_floats(response, "Y"), values.iter().map(|value| value * 2.).collect::<Vec<_>>());
        assert_eq!(read_floats(response, "Z"), values.iter().map(|value| -value).collect::<Vec<_>>());
    }
}

#[test]
fn each_request_receives_the_outputs_it_asked_for() {
    let mut model = doubling("max_batch_size: 8");
    let asking = |outputs: &[&str]| Request {
        outputs: outputs.iter().map(|&name| name.into()).collect(),
        ..request(vec![floats("X", &[1, 2], &[1., 2.])])
    };
    let answers = model.run(vec![asking(&["Z"]), asking(&[]), asking(&["Z", "Y"])]);
    let names = |index: usize| {
        let response: &inference::Response = answers[index].as_ref().unwrap();
        response.outputs.iter().map(|output| output.name().to_string()).collect::<Vec<_>>()
    };
    assert_eq!([names(0), names(1), names(2)], [vec!["Z"], vec!["Y", "Z"], vec!["Y", "Z"]]);
}

#[test]
fn a_batch_beyond_the_limit_is_refused_as_a_whole() {
    let mut model = doubling("max_batch_size: 2");
    let requests =
        vec![request(vec![floats("X", &[1, 2], &[1.; 2])]), request(vec![floats("X", &[2, 2], &[1.; 4])])];
    for answer in model.run(requests) {
        assert_eq!(answer.unwrap_err().with_code(), "Internal: batch size 3 for 'model', max allowed is 2");
    }
}

#[test]
fn a_batch_leaves_out_cancelled_requests() {
    let mut model = doubling("max_batch_size: 8");
    let requests =
        vec![request(vec![floats("X", &[1, 2], &[1., 2.])]), request(vec![floats("X", &[1, 2], &[3., 4.])])];
    let answers = model.run_after(requests, |streams| streams[0].cancel());
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!((error.code, error.reason), (ErrorCode::Cancelled, FailureReason::Cancelled));
    assert_eq!(read_floats(answers[1].as_ref().unwrap(), "Y"), [6., 8.]);
}

#[test]
fn a_failed_run_fails_every_request_and_the_next_run_succeeds() {
    let table = (0..4_u32).flat_map(|value| (value as f32).to_le_bytes()).collect::<Vec<_>>();
    let graph = Graph::default()
        .input("I", DataType::Int64, &[-1, 1])
        .output("Y", DataType::Fp32, &[-1, 1])
        .initializer("TABLE", DataType::Fp32, &[4], &table)
        .node("Gather", &["TABLE", "I"], &["Y"]);
    let mut model = Model::new(graph, "max_batch_size: 8").load(&backend()).unwrap();
    let index =
        |index: i64| request(vec![tensor("I", DataType::Int64, &[1, 1], index.to_le_bytes().to_vec())]);
    for answer in model.run(vec![index(1), index(77)]) {
        let error = answer.unwrap_err();
        assert_eq!((error.code, error.reason), (ErrorCode::Internal, FailureReason::Backend));
        assert!(error.message.starts_with("onnx runtime error 2: "), "{error}");
        assert!(error.message.contains("77") && !error.message.contains(".cc:"), "{error}");
        assert!(error.message.ends_with(" (model 'model', version 1)"), "{error}");
    }
    let answers = model.run(vec![index(1), index(3)]);
    let values: Vec<_> = answers.iter().map(|answer| read_floats(answer.as_ref().unwrap(), "Y")).collect();
    assert_eq!(values, [[1.], [3.]]);
}

#[test]
fn an_input_that_is_not_there_is_named() {
    let mut model = doubling("max_batch_size: 8");
    let error = model.infer(vec![]).unwrap_err();
    assert!(error.message.starts_with("onnx runtime error "), "{error}");
    assert!(error.message.contains("Missing Input: X"), "{error}");
}

#[test]
fn models_without_batch_dimension_run_each_request_alone() {
    let graph = Graph::unary("Neg", DataType::Fp32, &[2, 3]);
    let mut model = Model::new(graph, "").load(&backend()).unwrap();
    let requests = [1_f32, 2.].map(|value| request(vec![floats("X", &[2, 3], &[value; 6])]));
    let answers = model.run(requests.into());
    for (answer, value) in answers.iter().zip([-1_f32, -2.]) {
        let response = answer.as_ref().unwrap();
        assert_eq!((shape_of(response, "Y"), read_floats(response, "Y")), (vec![2, 3], vec![value; 6]));
    }
}

#[test]
fn scalars_are_one_element_to_the_client() {
    let mut model = Model::new(Graph::unary("Neg", DataType::Fp32, &[]), "").load(&backend()).unwrap();
    let response = model.infer(vec![floats("X", &[1], &[3.])]).unwrap();
    assert_eq!((shape_of(&response, "Y"), read_floats(&response, "Y")), (vec![1], vec![-3.]));
}

#[test]
fn a_scalar_belongs_to_every_request_of_its_batch() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[])
        .node_with("ReduceSum", &["X"], &["Y"], &[Attribute::Int("keepdims", 0)]);
    let config = "max_batch_size: 4
        input { name: 'X' data_type: TYPE_FP32 dims: 2 }
        output { name: 'Y' data_type: TYPE_FP32 dims: 1 }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let requests = [1., 2.].map(|value| request(vec![floats("X", &[1, 2], &[value; 2])]));
    for answer in model.run(requests.into()) {
        let response = answer.unwrap();
        assert_eq!((shape_of(&response, "Y"), read_floats(&response, "Y")), (vec![1], vec![6.]));
    }
}

/// The server has reshaped the request to `[rows]` before the backend receives it.
#[test]
fn one_value_per_row_is_shown_as_a_dimension_of_one() {
    let mut model = Model::new(Graph::unary("Neg", DataType::Fp32, &[-1]), "").load(&backend()).unwrap();
    assert_eq!(model.opened.config.inputs[0].reshape.as_deref(), Some(&[][..]));
    let requests = vec![request(vec![floats("X", &[2], &[1., 2.])]), request(vec![floats("X", &[1], &[3.])])];
    let answers = model.run(requests);
    let seen: Vec<_> = answers
        .iter()
        .map(|answer| (shape_of(answer.as_ref().unwrap(), "Y"), read_floats(answer.as_ref().unwrap(), "Y")))
        .collect();
    assert_eq!(seen, [(vec![2, 1], vec![-1., -2.]), (vec![1, 1], vec![-3.])]);
}

#[test]
fn an_output_is_shown_in_the_configured_shape() {
    let graph = Graph::unary("Neg", DataType::Fp32, &[-1, 4]);
    let config = "max_batch_size: 4
        input { name: 'X' data_type: TYPE_FP32 dims: [2, 2] reshape { shape: 4 } }
        output { name: 'Y' data_type: TYPE_FP32 dims: [2, 2] reshape { shape: 4 } }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let response = model.infer(vec![floats("X", &[3, 4], &[1.; 12])]).unwrap();
    assert_eq!(shape_of(&response, "Y"), [3, 2, 2]);
}

#[test]
fn an_optional_input_left_out_has_the_value_of_its_initialiser() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[2])
        .input("B", DataType::Fp32, &[2])
        .output("Y", DataType::Fp32, &[2])
        .initializer("B", DataType::Fp32, &[2], &crate::support::float_bytes(&[10., 20.]))
        .node("Add", &["X", "B"], &["Y"]);
    let config = "input [
            { name: 'X' data_type: TYPE_FP32 dims: 2 },
            { name: 'B' data_type: TYPE_FP32 dims: 2 optional: true }
        ]
        output { name: 'Y' data_type: TYPE_FP32 dims: 2 }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let alone = model.infer(vec![floats("X", &[2], &[1., 2.])]).unwrap();
    assert_eq!(read_floats(&alone, "Y"), [11., 22.]);
    let both = model.infer(vec![floats("X", &[2], &[1., 2.]), floats("B", &[2], &[0., 0.])]).unwrap();
    assert_eq!(read_floats(&both, "Y"), [1., 2.]);
}

/// A graph that receives all elements in one row and their counts, and negates the elements.
fn ragged(kind: &str, target_dims: &[i64]) -> (Graph, String) {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1])
        .input("N", DataType::Int32, target_dims)
        .output("Y", DataType::Fp32, &[-1])
        .output("C", DataType::Int32, target_dims)
        .node("Neg", &["X"], &["Y"])
        .node("Identity", &["N"], &["C"]);
    let config = format!(
        "max_batch_size: 8
        input {{ name: 'X' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }}
        batch_input {{ kind: {kind} target_name: 'N' data_type: TYPE_INT32 source_input: 'X' }}
        output {{ name: 'Y' data_type: TYPE_FP32 dims: -1 }}
        batch_output {{ target_name: 'Y' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: 'X' }}"
    );
    (graph, config)
}

#[test]
fn ragged_requests_are_joined_and_scattered_by_their_shapes() {
    let (graph, config) = ragged("BATCH_ELEMENT_COUNT", &[-1]);
    let mut model = Model::new(graph, &config).load(&backend()).unwrap();
    let lengths = [2, 4, 1, 3];
    let requests = lengths.map(|len| request(vec![floats("X", &[1, len], &vec![len as f32; len as usize])]));
    let answers = model.run(requests.into());
    for (answer, len) in answers.iter().zip(lengths) {
        let response = answer.as_ref().unwrap();
        assert_eq!(shape_of(response, "Y"), [1, len]);
        assert_eq!(read_floats(response, "Y"), vec![-(len as f32); len as usize]);
    }
}

#[test]
fn a_model_sees_the_counts_of_its_batch() {
    let (graph, config) = ragged("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", &[-1]);
    // `C` has one element more than the batch has requests, so every request receives all of it in the shape of `X`.
    let config = format!(
        "{config} output {{ name: 'C' data_type: TYPE_INT32 dims: -1 }}
        batch_output {{ target_name: 'C' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: 'X' }}"
    );
    let mut model = Model::new(graph, &config).load(&backend()).unwrap();
    let response = model.infer(vec![floats("X", &[1, 2], &[1., 1.])]).unwrap();
    assert_eq!(bytes_of(&response, "C"), [0_i32, 2].map(i32::to_le_bytes).concat());
}

/// The graph keeps only the first row of every batch.
#[test]
fn an_output_without_the_rows_of_its_batch_is_an_error() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .initializer("KEEP", DataType::Bool, &[1], &[1])
        .node_with("Compress", &["X", "KEEP"], &["Y"], &[Attribute::Int("axis", 0)]);
    let mut model = Model::new(graph, "max_batch_size: 8").load(&backend()).unwrap();
    let error = model.infer(vec![floats("X", &[3, 2], &[1.; 6])]).unwrap_err();
    assert_eq!(error.message, "output 'Y' of model 'model' has shape [1, 2], which cannot give 3 rows");
    let response = model.infer(vec![floats("X", &[1, 2], &[1.; 2])]).unwrap();
    assert_eq!(read_floats(&response, "Y"), [1., 1.]);
}
