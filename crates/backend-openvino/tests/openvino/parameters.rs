//! Parameters of models, as far as the library has to do with them.
use std::fs;

use crate::support::{Model, floats, read_floats};

fn parameter(name: &str, value: &str) -> String {
    format!("parameters {{ key: '{name}' value {{ string_value: '{value}' }} }} ")
}

/// The model of the tests, whose graph has a fixed number of rows.
fn fixed(rows: &str, config: &str) -> Model {
    let model = Model::affine(config);
    let file = model.version_directory().join("model.xml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("shape=\"?,4\"", &format!("shape=\"{rows},4\""));
    fs::write(&file, text.replace("<dim>-1</dim>", &format!("<dim>{rows}</dim>"))).unwrap();
    model
}

#[test]
fn the_library_accepts_every_parameter() {
    for (name, value) in [
        ("PERFORMANCE_HINT", "LATENCY"),
        ("PERFORMANCE_HINT", "THROUGHPUT"),
        ("PERFORMANCE_HINT", "CUMULATIVE_THROUGHPUT"),
        ("INFERENCE_NUM_THREADS", "2"),
        ("COMPILATION_NUM_THREADS", "1"),
        ("NUM_STREAMS", "2"),
        ("NUM_STREAMS", "AUTO"),
        ("NUM_STREAMS", "numa"),
        ("HINT_BF16", "YES"),
        ("SKIP_OV_DYNAMIC_BATCHSIZE", "YES"),
        ("ENABLE_BATCH_PADDING", "YES"),
        ("RESHAPE_IO_LAYERS", "YES"),
        ("TARGET_DEVICE", "CPU"),
    ] {
        let loaded = Model::affine(&parameter(name, value)).load_with(&crate::support::backend());
        let mut loaded = loaded.unwrap_or_else(|error| panic!("{name}={value}: {error}"));
        let response = loaded.infer(vec![floats(loaded_input(&loaded), &[1, 4], &[1., 2., 3., 4.])]).unwrap();
        assert_eq!(read_floats(&response, "y"), [2., 5., 8., 11.], "{name}={value}");
    }
}

fn loaded_input(loaded: &crate::support::Loaded) -> &'static str {
    if loaded.config.inputs[0].name == *"x" { "x" } else { "x_alias" }
}

#[test]
fn refused_parameters_are_named() {
    for (name, value) in
        [("TARGET_DEVICE", "GPU"), ("NUM_STREAMS", "x"), ("CPU_EXTENSION_PATH", "/nowhere.so")]
    {
        let refusal = Model::affine(&parameter(name, value)).refusal();
        assert!(refusal.contains(name), "{refusal}");
    }
}

#[test]
fn a_file_that_is_no_extension_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let refusal = Model::affine(&parameter("CPU_EXTENSION_PATH", path)).refusal();
    assert!(refusal.contains(path), "{refusal}");
}

#[test]
fn batches_open_the_first_dimension_of_a_graph_unless_a_parameter_forbids_it() {
    let batched = fixed("1", "max_batch_size: 8");
    let mut loaded = batched.load();
    let name = loaded_input(&loaded);
    let response = loaded.infer(vec![floats(name, &[2, 4], &[0., 1., 2., 3., 4., 5., 6., 7.])]).unwrap();
    assert_eq!(read_floats(&response, "y"), [0., 3., 6., 9., 8., 11., 14., 17.]);
    let skip = parameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES");
    let refusal = fixed("1", &format!("max_batch_size: 8 {skip}")).refusal();
    assert!(refusal.contains("its first dimension is not open"), "{refusal}");
    assert_eq!(fixed("1", "").load().config.max_batch_size, None);
}

#[test]
fn inputs_get_the_dims_of_the_configuration_if_a_parameter_says_so() {
    let dims = "input { name: 'x' data_type: TYPE_FP32 dims: [ 3, 4 ] } \
                output { name: 'y' data_type: TYPE_FP32 dims: [ 3, 4 ] }";
    let reshape = parameter("RESHAPE_IO_LAYERS", "YES");
    let mut loaded = fixed("1", &format!("{dims} {reshape}")).load();
    let response = loaded.infer(vec![floats("x", &[3, 4], &[1.; 12])]).unwrap();
    assert_eq!(read_floats(&response, "y"), [2., 3., 4., 5.].repeat(3));
    let refusal = fixed("1", dims).refusal();
    assert!(refusal.contains("tensor 'x'"), "{refusal}");
    let impossible = dims.replace("[ 3, 4 ]", "[ 3, 5 ]");
    let refusal = fixed("1", &format!("{impossible} {reshape}")).refusal();
    assert!(refusal.contains("cannot have inputs of the shapes [3,5]"), "{refusal}");
}

#[test]
fn instances_with_streams_share_a_model_with_fixed_shapes() {
    let mut loaded =
        fixed("1", &(parameter("NUM_STREAMS", "2") + &parameter("INFERENCE_NUM_THREADS", "2"))).load();
    for _ in 0..2 {
        let response = loaded.infer(vec![floats(loaded_input(&loaded), &[1, 4], &[1.; 4])]).unwrap();
        assert_eq!(read_floats(&response, "y"), [2., 3., 4., 5.]);
        loaded.change_instance();
    }
}
