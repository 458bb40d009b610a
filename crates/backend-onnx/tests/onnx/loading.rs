//! Tests of what a model's file determines, where it may be, and which settings it accepts.
use std::{fs, num::NonZeroUsize};

use backend_onnx::{BareLoop, OnnxBackend};
use inference::backend::Backend;
use native_backend::LibrarySearch;
use vocabulary::DataType;

use crate::{
    graph::Graph,
    support::{Model, backend, float_bytes, floats, read_floats, search},
};

fn negation() -> Graph {
    Graph::unary("Neg", DataType::Fp32, &[-1, 2])
}

#[test]
fn a_model_without_configuration_is_completed_from_its_graph() {
    let graph = Graph::default()
        .input("B", DataType::Fp32, &[-1, 2])
        .input("A", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .node("Sub", &["B", "A"], &["Y"]);
    let mut model = Model::new(graph, "").load(&backend()).unwrap();
    let config = &model.opened.config;
    assert_eq!(config.max_rows(), 4);
    assert_eq!(config.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["B", "A"]);
    assert!(matches!(config.scheduling, config::Scheduling::Dynamic(_)));
    let inputs = vec![floats("A", &[1, 2], &[1., 2.]), floats("B", &[1, 2], &[5., 5.])];
    assert_eq!(read_floats(&model.infer(inputs).unwrap(), "Y"), [4., 3.]);
}

#[test]
fn the_default_batch_size_is_a_setting() {
    let model = Model::new(negation(), "").setting("default-max-batch-size", "16").open(&backend()).unwrap();
    assert_eq!(model.config.max_rows(), 16);
}

#[test]
fn a_model_may_be_a_directory_with_data_beside_the_graph() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .external("W", DataType::Fp32, &[2], "weights.bin")
        .node("Add", &["X", "W"], &["Y"]);
    let model = Model::new(Graph::default(), "");
    let directory = model.version_directory().join("model.onnx");
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("model.onnx"), graph.encode()).unwrap();
    fs::write(directory.join("weights.bin"), float_bytes(&[10., 20.])).unwrap();
    let mut model = model.load(&backend()).unwrap();
    let response = model.infer(vec![floats("X", &[1, 2], &[1., 2.])]).unwrap();
    assert_eq!(read_floats(&response, "Y"), [11., 22.]);
}

#[test]
fn every_setting_of_the_runtime_is_taken() {
    let parameter =
        |key: &str, value: &str| format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}");
    let mut configs: Vec<String> = [
        ("execution_mode", "1"),
        ("intra_op_thread_count", "2"),
        ("inter_op_thread_count", "2"),
        ("session.use_device_allocator_for_initializers", "1"),
        ("session.intra_op.allow_spinning", "1"),
        ("enable_mem_arena", "off"),
        ("enable_mem_pattern", "FALSE"),
        ("memory.enable_memory_arena_shrinkage", "cpu:0"),
    ]
    .map(|(key, value)| parameter(key, value))
    .into();
    configs.extend([-1, 0, 1, 2].map(|level| format!("optimization {{ graph {{ level: {level} }} }}")));
    for config in configs {
        let mut model = Model::new(negation(), &config).load(&backend()).unwrap();
        let response = model.infer(vec![floats("X", &[1, 2], &[1., 2.])]).unwrap();
        assert_eq!(read_floats(&response, "Y"), [-1., -2.], "{config}");
    }
}

#[test]
fn the_library_is_opened_with_the_first_model() {
    let backend = backend();
    let expected = backend.location();
    assert!(expected.contains("libonnxruntime.so"), "{expected}");
    Model::new(negation(), "").load(&backend).unwrap();
    assert_eq!(backend.location(), expected);
}

#[test]
fn without_a_library_a_model_says_how_to_get_one() {
    let directory = tempfile::tempdir().unwrap();
    let search = LibrarySearch { named: Some(directory.path().into()), ..LibrarySearch::default() };
    let backend = OnnxBackend::new(search);
    assert_eq!(backend.location(), "");
    let error = Model::new(negation(), "").open(&backend).map(|_| ()).unwrap_err();
    let start =
        format!("unable to load ONNX Runtime from '{}/libonnxruntime.so': ", directory.path().display());
    assert!(error.message.starts_with(&start), "{error}");
    assert!(error.message.ends_with(
        "; get it with 'pip install onnxruntime', or name it with --onnxruntime-library=PATH or \
         --backend-config=onnxruntime,library=PATH"
    ));
    let again = Model::new(negation(), "").open(&backend).map(|_| ()).unwrap_err();
    assert!(again.message.starts_with("ONNX Runtime cannot be used, as an earlier error tells: get it"));
}

#[test]
fn a_library_of_another_kind_is_refused() {
    let other = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"];
    let other = other.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap();
    let model = Model::new(negation(), "").setting("library", other);
    let error = model.open(&backend()).map(|_| ()).unwrap_err();
    assert!(error.message.contains(other) && error.message.contains("OrtGetApiBase"), "{error}");
}

#[test]
fn the_bare_loop_runs_as_often_as_asked() {
    let model = Model::new(negation(), "");
    let file = model.version_directory().join("model.onnx");
    let mut bare = BareLoop::open(&search(), &file, 8, NonZeroUsize::MIN).unwrap();
    assert_eq!(bare.run(10), Ok(10));
    assert_eq!(bare.run(5), Ok(5));
}
