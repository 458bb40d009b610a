//! Tests of graphs whose open first dimension may be a batch or not: at load, two requests run alone and together.
use vocabulary::DataType;

use crate::{
    graph::{Attribute, Graph},
    support::{Loaded, Model, backend, float_bytes, floats, read_floats, shape_of},
};

fn load(graph: Graph, config: &str) -> Loaded {
    Model::new(graph, config).load(&backend()).unwrap()
}

/// `max_batch_size` in the completed configuration.
fn completed(graph: Graph) -> u32 {
    load(graph, "").opened.config.max_batch_size.map_or(0, std::num::NonZeroU32::get)
}

fn cumulative_sum(dims: &[i64]) -> Graph {
    Graph::default()
        .input("X", DataType::Fp32, dims)
        .output("Y", DataType::Fp32, dims)
        .initializer("AXIS", DataType::Int64, &[], &0_i64.to_le_bytes())
        .node("CumSum", &["X", "AXIS"], &["Y"])
}

fn softmax(axis: i64) -> Graph {
    let graph = Graph::default().input("X", DataType::Fp32, &[-1, 4]).output("Y", DataType::Fp32, &[-1, 4]);
    graph.node_with("Softmax", &["X"], &["Y"], &[Attribute::Int("axis", axis)])
}

#[test]
fn a_graph_that_computes_along_its_first_dimension_is_not_batched() {
    assert_eq!(completed(cumulative_sum(&[-1, 2])), 0);
    assert_eq!(completed(cumulative_sum(&[-1])), 0);
    assert_eq!(completed(softmax(0)), 0);
}

#[test]
fn a_model_that_is_opened_again_is_completed_as_before_until_its_file_changes() {
    let backend = backend();
    let model = Model::new(softmax(1), "");
    let completed = || {
        let config = model.open(&backend).unwrap().config;
        (config.max_batch_size.map_or(0, std::num::NonZeroU32::get), config.inputs[0].dims.to_vec())
    };
    let batched = completed();
    assert_eq!((completed(), batched.0 > 0), (batched, true));
    let file = model.version_directory().join("model.onnx");
    for (graph, dims) in [(softmax(0), [-1, 4]), (cumulative_sum(&[3, 2]), [3, 2]), (softmax(0), [-1, 4])] {
        std::fs::write(&file, graph.encode()).unwrap();
        assert_eq!([completed(), completed()], [(); 2].map(|()| (0, dims.to_vec())));
    }
}

#[test]
fn a_request_for_such_a_graph_has_all_of_the_dimension() {
    let mut model = load(cumulative_sum(&[-1, 2]), "");
    let response = model.infer(vec![floats("X", &[3, 2], &[1., 2., 3., 4., 5., 6.])]).unwrap();
    assert_eq!(shape_of(&response, "Y"), [3, 2]);
    assert_eq!(read_floats(&response, "Y"), [1., 2., 4., 6., 9., 12.]);
}

#[test]
fn a_configuration_may_ask_for_batches_of_such_a_graph() {
    let model = load(cumulative_sum(&[-1, 2]), "max_batch_size: 8");
    assert_eq!(model.opened.config.max_rows(), 8);
    let rows = "input { name: 'X' dims: 2 }";
    assert_eq!(load(cumulative_sum(&[-1, 2]), rows).opened.config.max_rows(), 1);
}

#[test]
fn a_graph_whose_batch_is_fixed_inside_is_not_batched() {
    let shape = [1_i64, 2].map(i64::to_le_bytes).concat();
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .initializer("SHAPE", DataType::Int64, &[2], &shape)
        .node("Reshape", &["X", "SHAPE"], &["Y"]);
    assert_eq!(completed(graph), 0);
}

#[test]
fn graphs_of_independent_rows_are_batched_whatever_their_datatype() {
    assert_eq!(completed(softmax(1)), 4);
    for datatype in DataType::ALL {
        assert_eq!(completed(Graph::unary("Identity", datatype, &[-1, 2])), 4, "{datatype:?}");
    }
    let table = float_bytes(&[10., 20.]);
    let lookup = Graph::default()
        .input("I", DataType::Int64, &[-1, -1])
        .output("Y", DataType::Fp32, &[-1, -1])
        .initializer("TABLE", DataType::Fp32, &[2], &table)
        .node("Gather", &["TABLE", "I"], &["Y"]);
    assert_eq!(completed(lookup), 4);
}

#[test]
fn a_graph_with_random_numbers_is_batched() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .node("RandomNormalLike", &["X"], &["N"])
        .node("Add", &["X", "N"], &["Y"]);
    assert_eq!(completed(graph), 4);
}

#[test]
fn a_graph_that_runs_with_no_probe_is_batched() {
    assert_eq!(completed(Graph::of_seven_columns()), 4);
}
