//! Tests of classifiers that end in a ZipMap, as scikit-learn's converter exports them by default.
use std::fs;

use vocabulary::DataType;

use crate::{
    graph::Graph,
    support::{Loaded, Model, backend, floats, read_floats, shape_of},
};

const LABELS: [&str; 3] = ["ant", "bee", "cat"];

fn check(mut model: Loaded) {
    let response = model.infer(vec![floats("X", &[2, 3], &[0.1, 0.7, 0.2, 0.5, 0.25, 0.25])]).unwrap();
    assert_eq!(shape_of(&response, "probability"), [2, 3]);
    assert_eq!(read_floats(&response, "probability"), [0.1, 0.7, 0.2, 0.5, 0.25, 0.25]);
}

/// A classifier that consists only of a ZipMap.
fn bare() -> Graph {
    Graph::default().input("X", DataType::Fp32, &[-1, 3]).zip_map("X", "probability", &LABELS)
}

#[test]
fn the_tensor_below_a_zip_map_is_served_under_the_name_of_its_output() {
    let model = Model::new(bare(), "").load(&backend()).unwrap();
    let config = &model.opened.config;
    assert_eq!(config.max_rows(), 4);
    let output = config.output("probability").unwrap();
    assert_eq!((output.datatype, &output.dims[..]), (DataType::Fp32, &[3][..]));
    check(model);
}

#[test]
fn a_configuration_may_name_the_output_of_a_zip_map() {
    let config = "max_batch_size: 8
        input { name: 'X' data_type: TYPE_FP32 dims: 3 } output { name: 'probability' data_type: TYPE_FP32 dims: 3 }";
    check(Model::new(bare(), config).load(&backend()).unwrap());
}

#[test]
fn a_graph_without_standard_operators_gets_those_that_it_needs() {
    let model = Model::new(bare(), "");
    let file = model.version_directory().join("model.onnx");
    fs::write(file, bare().encode_for(&[("ai.onnx.ml", 3)])).unwrap();
    check(model.load(&backend()).unwrap());
}

#[test]
fn what_is_beside_the_zip_map_is_served_as_before() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 3])
        .output("Y", DataType::Fp32, &[-1, 3])
        .node("Neg", &["X"], &["Y"])
        .zip_map("X", "probability", &LABELS);
    let mut model = Model::new(graph, "").load(&backend()).unwrap();
    let response = model.infer(vec![floats("X", &[1, 3], &[1., 2., 3.])]).unwrap();
    let names: Vec<_> = response.outputs.iter().map(|output| output.name().to_string()).collect();
    assert_eq!(names, ["Y", "probability"]);
    assert_eq!(read_floats(&response, "Y"), [-1., -2., -3.]);
    assert_eq!(read_floats(&response, "probability"), [1., 2., 3.]);
}
