//! Files of models, completed configurations, and models that cannot be loaded.
use std::fs;

use backend_openvino::OpenVinoBackend;
use native_backend::LibrarySearch;
use vocabulary::DataType;

use crate::support::{Model, floats, read_floats};

const IO: &str =
    "input { name: 'x' data_type: TYPE_FP32 dims: 4 } output { name: 'y' data_type: TYPE_FP32 dims: 4 }";

#[test]
fn each_format_is_found_by_its_name_and_computes_the_same() {
    for (file, name) in
        [("affine.onnx", "model.onnx"), ("affine.tflite", "model.tflite"), ("affine.pb", "model.pb")]
    {
        let mut loaded = Model::new(&[(file, name)], "").load();
        let config = loaded.config.clone();
        let (input, output) = (&config.inputs[0].name, &config.outputs[0].name);
        let response = loaded.infer(vec![floats(input, &[1, 4], &[1., -1., 0., -3.])]).unwrap();
        assert_eq!(read_floats(&response, output), [2., 0., 2., 0.], "{file}");
    }
}

#[test]
fn a_saved_model_is_a_folder() {
    let model = Model::new(&[], "");
    let folder = model.add_saved_model("model.saved_model");
    let mut loaded = model.load();
    let config = loaded.config.clone();
    let input = floats(&config.inputs[0].name, &[1, 4], &[1., -1., 0., -3.]);
    let response = loaded.infer(vec![input]).unwrap();
    assert_eq!(read_floats(&response, &config.outputs[0].name), [2., 0., 2., 0.]);
    fs::remove_file(folder.join("saved_model.pb")).unwrap();
    assert!(model.refusal().ends_with("is a folder without saved_model.pb, so it is no SavedModel"));
}

#[test]
fn a_configuration_is_completed_from_the_graph() {
    let config = Model::affine("").load().config;
    let (input, output) = (&config.inputs[0], &config.outputs[0]);
    assert!(["x", "x_alias"].contains(&input.name.as_str()), "{}", input.name);
    assert_eq!((input.datatype, &input.dims[..]), (DataType::Fp32, &[4][..]));
    assert_eq!((output.name.as_str(), output.datatype, &output.dims[..]), ("y", DataType::Fp32, &[4][..]));
    assert_eq!(config.max_batch_size.map(u32::from), Some(4));
}

#[test]
fn each_name_of_an_input_may_be_configured() {
    for name in ["x", "x_alias"] {
        let io = IO.replace("'x'", &format!("'{name}'"));
        let mut loaded = Model::affine(&format!("max_batch_size: 8 {io}")).load();
        let response = loaded.infer(vec![floats(name, &[1, 4], &[1.; 4])]).unwrap();
        assert_eq!(read_floats(&response, "y"), [2., 3., 4., 5.]);
    }
}

#[test]
fn a_configuration_that_contradicts_the_graph_is_refused() {
    let wrong = |from: &str, to: &str| {
        Model::affine(&format!("max_batch_size: 8 {}", IO.replace(from, to))).refusal()
    };
    let refusal = wrong("name: 'y'", "name: 'z'");
    assert!(refusal.contains("unexpected inference output 'z', allowed outputs are: y"), "{refusal}");
    let refusal = wrong("FP32 dims: 4 } output", "FP32 dims: 5 } output");
    assert!(refusal.contains("tensor 'x'") && refusal.contains("[-1,4]"), "{refusal}");
    let refusal = wrong("TYPE_FP32 dims: 4 } output", "TYPE_INT32 dims: 4 } output");
    assert!(refusal.contains("TYPE_INT32 for input 'x', model provides TYPE_FP32"), "{refusal}");
}

#[test]
fn a_missing_file_is_told_with_the_names_that_it_may_have() {
    let refusal = Model::new(&[], IO).refusal();
    assert!(
        refusal.starts_with("Unavailable: unable to find '") && refusal.contains("/1/model.xml'"),
        "{refusal}"
    );
    assert!(refusal.contains("model.xml, model.onnx, model.saved_model"), "{refusal}");
    let refusal = Model::affine(&format!("default_model_filename: 'other.xml' {IO}")).refusal();
    assert!(
        refusal.contains("/1/other.xml' for model 'model': default_model_filename names it"),
        "{refusal}"
    );
}

#[test]
fn truncated_files_are_refused_by_the_path() {
    let model = Model::affine("");
    let file = model.version_directory().join("model.xml");
    let content = fs::read(&file).unwrap();
    fs::write(&file, &content[..content.len() / 2]).unwrap();
    let refusal = model.refusal();
    assert!(refusal.contains("openvino error") && refusal.contains("/1/model.xml'"), "{refusal}");
    fs::write(&file, content).unwrap();
    fs::write(model.version_directory().join("model.bin"), [0; 3]).unwrap();
    let refusal = model.refusal();
    assert!(refusal.contains("openvino error") && refusal.contains("/1/model.xml'"), "{refusal}");
}

#[test]
fn an_input_without_a_name_is_refused() {
    let model = Model::affine("");
    let file = model.version_directory().join("model.xml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(" names=\"x,x_alias\"", "")).unwrap();
    let refusal = model.refusal();
    assert!(refusal.contains("input 0 of model 'model' has no name; save the model with names"), "{refusal}");
}

#[test]
fn outputs_of_strings_are_refused_by_name() {
    let refusal = Model::new(&[("unchanged.xml", "model.xml")], "").refusal();
    assert!(refusal.contains("'s_out'") && refusal.contains("cannot read strings"), "{refusal}");
}

#[test]
fn without_the_library_the_remedy_is_told_once_at_length() {
    let search = LibrarySearch { named: Some("/nowhere/libs".into()), ..LibrarySearch::default() };
    let backend = OpenVinoBackend::new(search);
    let refusal = || Model::affine("").load_with(&backend).map(|_| ()).unwrap_err().with_code();
    let first = refusal();
    assert!(first.starts_with("Unavailable: unable to load OpenVINO from '/nowhere/libs'"), "{first}");
    assert!(first.contains("pip install openvino"), "{first}");
    let second = refusal();
    assert!(
        second.starts_with("Unavailable: OpenVINO cannot be used, as an earlier error tells"),
        "{second}"
    );
}
