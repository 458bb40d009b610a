//! Models whose configuration is for another backend of Triton.
use std::fs;

use backend_openvino::OpenVinoBackend;
use native_backend::LibrarySearch;

use crate::support::{Model, floats, read_floats};

fn unopened() -> OpenVinoBackend {
    OpenVinoBackend::new(LibrarySearch::default())
}

#[test]
fn a_frozen_graph_has_the_names_of_its_operators() {
    let io = "input { name: 'x' data_type: TYPE_FP32 dims: 4 } output { name: 'Relu' data_type: TYPE_FP32 dims: 4 }";
    let config = format!("platform: 'tensorflow_graphdef' max_batch_size: 8 {io}");
    let mut loaded = Model::with_config(&[("affine.pb", "model.graphdef")], &config).load();
    let response = loaded.infer(vec![floats("x", &[1, 4], &[1., -1., 0., -3.])]).unwrap();
    assert_eq!(read_floats(&response, "Relu"), [2., 0., 2., 0.]);
}

#[test]
fn a_saved_model_needs_no_configuration() {
    let model = Model::with_config(&[], "");
    model.add_saved_model("model.savedmodel");
    assert!(model.runs(&unopened(), &[]));
    let mut loaded = model.load();
    assert_eq!((&*loaded.config.backend, &*loaded.config.platform), ("tensorflow", "tensorflow_savedmodel"));
    let response = loaded.infer(vec![floats("x", &[1, 4], &[1., -1., 0., -3.])]).unwrap();
    assert_eq!(read_floats(&response, "y"), [2., 0., 2., 0.]);
}

#[test]
fn other_parts_of_a_saved_model_are_refused_by_name() {
    for (name, only) in [("TF_GRAPH_TAG", "serve"), ("TF_SIGNATURE_DEF", "serving_default")] {
        let with = |value: &str| {
            let parameter = format!("parameters {{ key: '{name}' value {{ string_value: '{value}' }} }}");
            let model = Model::with_config(&[], &parameter);
            model.add_saved_model("model.savedmodel");
            model
        };
        with(only).load();
        let refusal = with("other").refusal();
        assert!(refusal.contains(&format!("'{name}' is 'other'")), "{refusal}");
        assert!(refusal.ends_with(&format!("knows only '{only}'")), "{refusal}");
    }
}

#[test]
fn a_backend_for_tensorflow_in_the_backend_directory_goes_first_unless_a_setting_says_otherwise() {
    let model = Model::with_config(&[], "platform: 'tensorflow_savedmodel'");
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().display().to_string();
    let directory = ("", "backend-directory", directory.as_str());
    let chosen = |value| [directory, ("tensorflow", "implementation", value)];
    assert!(model.runs(&unopened(), &[directory]));
    assert!(!model.runs(&unopened(), &chosen("triton")));
    fs::create_dir(root.path().join("tensorflow")).unwrap();
    fs::write(root.path().join("tensorflow/libtriton_tensorflow.so"), "").unwrap();
    assert!(!model.runs(&unopened(), &[directory]));
    assert!(model.runs(&unopened(), &chosen("built-in")));
}

#[test]
fn the_setting_of_onnx_runtime_decides_on_its_models_that_name_openvino_as_their_accelerator() {
    let accelerator = "backend: 'onnxruntime'
        optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }";
    let model = Model::with_config(&[("affine.onnx", "model.onnx")], accelerator);
    assert!(model.runs(&unopened(), &[]));
    assert!(model.runs(&unopened(), &[("openvino", "implementation", "triton")]));
    assert!(!model.runs(&unopened(), &[("onnxruntime", "implementation", "triton")]));
    assert!(!Model::affine("").runs(&unopened(), &[("openvino", "implementation", "triton")]));
}
