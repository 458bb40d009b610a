//! Reading models in all formats, their inputs and outputs, compiling.
use std::fs;

use vocabulary::{DataType, Name};

use super::*;

fn port(name: &str, datatype: DataType, shape: &[i64]) -> ModelPort {
    ModelPort {
        name: Some(Name::new(name)),
        element: PortElement::Known(datatype),
        shape: Some(shape.into()),
    }
}

/// The model of each format, and the names of its input and its output.
const FORMATS: [(&str, &str, &str); 6] = [
    ("affine.xml", "x", "y"),
    ("affine.onnx", "x", "y"),
    ("affine.saved_model", "x", "y"),
    ("affine.pb", "x:0", "Identity:0"),
    ("affine.tflite", "serving_default_x:0", "PartitionedCall:0"),
    ("affine.pdmodel", "x", "relu_0.tmp_0"),
];

#[test]
fn every_format_is_read_and_computes_the_same() {
    let input = AlignedBytes::of(&bytes_of(&[1.0, -2.0, 3.0, 4.0, 0.5, 0.0, -4.0, 8.0]));
    for (file, x, y) in FORMATS {
        let model = compiled(file);
        let ports = ModelPorts {
            inputs: vec![port(x, DataType::Fp32, &[-1, 4])],
            outputs: vec![port(y, DataType::Fp32, &[-1, 4])],
        };
        assert_eq!(model.ports(), &ports, "{file}");
        let x = OvInput::over(openvino(), DataType::Fp32, &[2, 4], input.bytes()).unwrap();
        let outputs = InferRequest::new(&model).unwrap().run(&[x], &[OutputTarget::New]).unwrap();
        assert_eq!(outputs[0].shape(), [2, 4]);
        assert_eq!(outputs[0].datatype(), DataType::Fp32);
        assert_eq!(floats_of(outputs[0].as_ref()), [2.0, 0.0, 8.0, 11.0, 1.0, 1.0, 0.0, 19.0], "{file}");
    }
}

#[test]
fn all_datatypes_are_known_by_the_numbers_of_the_release() {
    let model = graph("types.xml");
    let types = model.ports().unwrap().inputs.into_iter().map(|port| (port.name.unwrap(), port.element));
    let wanted = [
        ("boolean", DataType::Bool),
        ("u8", DataType::Uint8),
        ("u16", DataType::Uint16),
        ("u32", DataType::Uint32),
        ("u64", DataType::Uint64),
        ("i8", DataType::Int8),
        ("i16", DataType::Int16),
        ("i32", DataType::Int32),
        ("i64", DataType::Int64),
        ("f16", DataType::Fp16),
        ("bf16", DataType::Bf16),
        ("f32", DataType::Fp32),
        ("f64", DataType::Fp64),
    ];
    let wanted = wanted.map(|(name, datatype)| (Name::new(name), PortElement::Known(datatype)));
    assert_eq!(types.collect::<Vec<_>>(), wanted);
}

#[test]
fn an_input_is_found_by_each_of_its_names() {
    let model = graph("affine.xml");
    assert_eq!(model.input_position("x").unwrap(), Some(0));
    assert_eq!(model.input_position("x_alias").unwrap(), Some(0));
    assert_eq!(model.input_position("y").unwrap(), None);
    assert_eq!(model.output_position("y").unwrap(), Some(0));
    assert_eq!(model.input_position("x\0").unwrap(), None);
}

#[test]
fn what_has_no_name_is_told_without_one() {
    let text = fs::read_to_string(path("affine.xml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("affine.xml");
    fs::write(&file, text.replace(r#" names="x,x_alias""#, "").replace(r#" output_names="y""#, "")).unwrap();
    fs::copy(path("affine.bin"), directory.path().join("affine.bin")).unwrap();
    let ports = ModelGraph::read(openvino(), &file).unwrap().ports().unwrap();
    assert_eq!(ports.inputs[0].name, None);
}

#[test]
fn a_reshaped_model_has_the_new_shapes() {
    let mut model = graph("affine.xml");
    model.reshape(&[(0, [3, 4].as_slice().into())]).unwrap();
    let ports = model.ports().unwrap();
    assert_eq!(
        (&ports.inputs[0].shape, &ports.outputs[0].shape),
        (&Some([3, 4].as_slice().into()), &Some([3, 4].as_slice().into()))
    );
    model.reshape(&[(0, [-1, -1].as_slice().into())]).unwrap();
    assert_eq!(model.ports().unwrap().inputs[0].shape.as_deref(), Some(&[-1, -1][..]));
}

#[test]
fn a_compiled_model_tells_what_it_uses() {
    let mut options = CompileOptions::processors(NonZeroUsize::new(2).unwrap());
    options.set("PERFORMANCE_HINT", "THROUGHPUT");
    options.set("PERFORMANCE_HINT", "LATENCY");
    let model = CompiledModel::compile(&graph("network.xml"), &options).unwrap();
    for (key, value) in [
        ("INFERENCE_NUM_THREADS", "2"),
        ("NUM_STREAMS", "1"),
        ("PERFORMANCE_HINT", "LATENCY"),
        ("INFERENCE_PRECISION_HINT", "f32"),
        ("ENABLE_CPU_PINNING", "NO"),
    ] {
        assert_eq!(model.property(key).unwrap(), value, "{key}");
    }
    options.unset("PERFORMANCE_HINT");
    options.set("NUM_STREAMS", "2");
    let model = CompiledModel::compile(&graph("network.xml"), &options).unwrap();
    assert_eq!(model.property("NUM_STREAMS").unwrap(), "2");
}

#[test]
fn the_library_is_told() {
    let file = openvino().path().file_name().unwrap().to_str().unwrap();
    assert!(file.starts_with("libopenvino_c.so"), "{file}");
    let year = openvino().version().split('.').next().unwrap().parse::<u32>().unwrap();
    assert!(year >= 2025, "{}", openvino().version());
}

#[test]
fn no_file_of_a_model_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["network.xml", "network.bin", "affine.onnx"] {
        fs::copy(path(name), directory.path().join(name)).unwrap();
    }
    let read = |name: &str| ModelGraph::read(openvino(), &directory.path().join(name)).unwrap();
    let models = ["network.xml", "affine.onnx"]
        .map(|name| CompiledModel::compile(&read(name), &one_thread()).unwrap());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("libopenvino"));
    assert!(!maps.contains(directory.path().to_str().unwrap()));
    drop(models);
}
