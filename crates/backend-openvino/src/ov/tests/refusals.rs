//! What the library or the wrapper refuses, and how it tells that.
use std::fs;

use vocabulary::DataType;

use super::*;

fn read_error(path: &Path) -> String {
    ModelGraph::read(openvino(), path).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_file_that_is_not_whole_is_refused_with_its_path_and_the_rule() {
    let directory = tempfile::tempdir().unwrap();
    let (xml, bin) = (directory.path().join("network.xml"), directory.path().join("network.bin"));
    let (graph, weights) = (fs::read(path("network.xml")).unwrap(), fs::read(path("network.bin")).unwrap());
    let check = |graph: &[u8], weights: Option<&[u8]>, rule: &str| {
        fs::write(&xml, graph).unwrap();
        match weights {
            Some(weights) => fs::write(&bin, weights).unwrap(),
            None => fs::remove_file(&bin).unwrap(),
        }
        let error = read_error(&xml);
        assert!(error.contains(rule) && error.contains(xml.to_str().unwrap()), "{error}");
        assert!(!error.contains(".cpp") && !error.contains('\n'), "{error}");
    };
    check(&graph[..graph.len() / 2], Some(&weights), "Error parsing element attribute");
    check(b"", Some(&weights), "Unable to read the model");
    check(&graph, Some(&weights[..100]), "Incorrect weights in bin file!");
    check(&graph, Some(b""), "Incorrect weights in bin file!");
    check(&graph, None, "bin file cannot be found!");
}

#[test]
fn every_beginning_of_a_file_is_refused_or_read_without_harm() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["affine.onnx", "affine.tflite", "affine.pdmodel"] {
        let (whole, file) = (fs::read(path(name)).unwrap(), directory.path().join(name));
        for length in (0..whole.len()).step_by(whole.len() / 8 + 1) {
            fs::write(&file, &whole[..length]).unwrap();
            if let Ok(graph) = ModelGraph::read(openvino(), &file) {
                let _ = graph.ports().unwrap();
            }
        }
    }
}

#[test]
fn a_missing_model_is_told_with_its_path() {
    let error = read_error(Path::new("/nowhere/model.xml"));
    assert!(
        error.starts_with("openvino error ") && error.contains("cannot read '/nowhere/model.xml': "),
        "{error}"
    );
    assert!(read_error(Path::new("/nowhere/a\0b.xml")).contains("has a NUL inside"));
}

#[test]
fn an_unknown_device_or_property_is_told() {
    let compile = |options: &CompileOptions| {
        CompiledModel::compile(&graph("affine.xml"), options).map(|_| ()).unwrap_err().to_string()
    };
    assert!(compile(&CompileOptions::device("TPU")).contains("TPU"));
    let mut options = one_thread();
    options.set("NO_SUCH_PROPERTY", "1");
    assert!(compile(&options).contains("NO_SUCH_PROPERTY"));
    let mut options = one_thread();
    options.set("NUM_STREAMS", "many");
    assert!(compile(&options).contains("many"));
    let mut options = one_thread();
    (0..20).for_each(|number| options.set(&format!("P{number}"), "1"));
    assert!(compile(&options).contains("more than 16 properties"));
    let error = compiled("affine.xml").property("NO_SUCH_PROPERTY").unwrap_err().to_string();
    assert!(error.contains("cannot read the property NO_SUCH_PROPERTY"), "{error}");
}

#[test]
fn an_extension_that_is_none_is_told_with_its_path() {
    let error = openvino().add_extension(&path("affine.onnx")).unwrap_err().to_string();
    assert!(error.contains("affine.onnx"), "{error}");
}

#[test]
fn a_tensor_that_the_model_cannot_use_is_an_error_of_the_library() {
    let mut request = InferRequest::new(&compiled("affine.xml")).unwrap();
    let bytes = AlignedBytes::of(&[0; 64]);
    let over = |of, shape: &[i64], len| OvInput::over(openvino(), of, shape, &bytes.bytes()[..len]).unwrap();
    for (name, x) in [
        ("columns", over(DataType::Fp32, &[2, 5], 40)),
        ("rank", over(DataType::Fp32, &[4], 16)),
        ("type", over(DataType::Int32, &[1, 4], 16)),
    ] {
        let error = request.run(&[x], &[OutputTarget::New]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("input 'x'") || error.contains("run the model"), "{name}: {error}");
        assert!(!error.contains("no reason told"), "{name}: {error}");
    }
    request.run(&[over(DataType::Fp32, &[1, 4], 16)], &[OutputTarget::New]).unwrap();
}

#[test]
fn a_place_of_another_shape_is_an_error() {
    let mut request = InferRequest::new(&compiled("affine.xml")).unwrap();
    let bytes = AlignedBytes::of(&bytes_of(&[1.0; 8]));
    for shape in [[1, 4], [3, 4], [4, 2], [2, 2], [8, 1]] {
        let len = usize::try_from(4 * shape[0] * shape[1]).unwrap();
        let mut place = AlignedBytes::of(&vec![0xee; len + 64]);
        let target =
            RunPlace::over(openvino(), DataType::Fp32, &shape, &mut place.bytes_mut()[..len]).unwrap();
        let x = OvInput::over(openvino(), DataType::Fp32, &[2, 4], bytes.bytes()).unwrap();
        let error = request.run(&[x], &[OutputTarget::Place(target)]).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("openvino error "), "{error}");
        assert_eq!(&place.bytes()[len..], [0xee; 64], "{shape:?}");
    }
}

#[test]
fn a_place_of_another_type_is_an_error() {
    let mut request = InferRequest::new(&compiled("unchanged.xml")).unwrap();
    let bytes = AlignedBytes::of(&[0; 12]);
    let mut place = AlignedBytes::of(&[0xee; 24]);
    let x = OvInput::over(openvino(), DataType::Fp32, &[1, 3], bytes.bytes()).unwrap();
    let s = OvInput::strings(openvino(), &[1], &[b"a"]).unwrap();
    let target = RunPlace::over(openvino(), DataType::Fp64, &[1, 3], place.bytes_mut()).unwrap();
    let targets = [OutputTarget::Place(target), OutputTarget::Unread];
    let error = request.run(&[x, s], &targets).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("output 'x_out' has another type than its place"), "{error}");
}

#[test]
fn a_run_has_all_inputs_and_outputs() {
    let mut request = InferRequest::new(&compiled("pair.xml")).unwrap();
    let error = request.run(&[], &[]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a run with 0 inputs of a model that has 2"), "{error}");
}

#[test]
fn bytes_that_cannot_be_a_tensor_are_refused() {
    let bytes = AlignedBytes::of(&[0; 16]);
    let refused = |of, shape: &[i64], bytes| OvInput::over(openvino(), of, shape, bytes).is_err();
    assert!(refused(DataType::Fp32, &[5], bytes.bytes()));
    assert!(refused(DataType::Fp32, &[-4], bytes.bytes()));
    assert!(refused(DataType::Fp32, &[3], &bytes.bytes()[1..13]));
    assert!(refused(DataType::Bytes, &[4], bytes.bytes()));
    assert!(OvInput::strings(openvino(), &[2], &[b"one"]).is_err());
    let error = OvInput::strings(openvino(), &[1], &[b"a\0b"]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("string 0 has a NUL"), "{error}");
}

#[test]
fn an_output_of_strings_is_refused_by_name() {
    let mut request = InferRequest::new(&compiled("unchanged.xml")).unwrap();
    let bytes = AlignedBytes::of(&[0; 12]);
    let x = OvInput::over(openvino(), DataType::Fp32, &[1, 3], bytes.bytes()).unwrap();
    let s = OvInput::strings(openvino(), &[1], &[b"a"]).unwrap();
    let error =
        request.run(&[x, s], &[OutputTarget::New, OutputTarget::New]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("strings"), "{error}");
}

#[test]
fn a_shape_that_the_model_cannot_have_leaves_it_as_it_was() {
    let mut model = graph("affine.xml");
    assert!(model.reshape(&[(0, [2, 5].as_slice().into())]).is_err());
    assert!(model.reshape(&[(0, [2, -2].as_slice().into())]).is_err());
    assert!(model.reshape(&[(1, [2, 4].as_slice().into())]).is_err());
    assert_eq!(model.ports().unwrap().inputs[0].shape.as_deref(), Some(&[-1, 4][..]));
}

#[test]
fn a_run_that_fails_is_told_and_changes_nothing_for_the_next_one() {
    let bytes = AlignedBytes::of(&[1; 48]);
    let over = |rows: i64| {
        let len = usize::try_from(rows * 16).unwrap();
        OvInput::over(openvino(), DataType::Int64, &[rows, 2], &bytes.bytes()[..len]).unwrap()
    };
    for streams in ["0", "1"] {
        let mut options = one_thread();
        options.set("NUM_STREAMS", streams);
        let model = CompiledModel::compile(&graph("pair.xml"), &options).unwrap();
        let mut request = InferRequest::new(&model).unwrap();
        for (a, b) in [(2, 2), (2, 3), (2, 2), (2, 3), (3, 3), (2, 3), (3, 3), (3, 2), (1, 1), (2, 2)] {
            let result = request.run(&[over(a), over(b)], &[OutputTarget::New, OutputTarget::Unread]);
            match result.map_err(|error| error.to_string()) {
                Ok(outputs) => assert_eq!((a, outputs[0].shape()), (b, &[b, 2][..])),
                Err(error) => assert!(a != b && error.contains("cannot run the model: "), "{error}"),
            }
        }
        assert!(!model.is_broken());
    }
}

#[test]
fn a_model_of_several_streams_is_broken_by_a_run_that_fails() {
    let bytes = AlignedBytes::of(&[1; 48]);
    let over = |rows: i64| {
        let len = usize::try_from(rows * 16).unwrap();
        OvInput::over(openvino(), DataType::Int64, &[rows, 2], &bytes.bytes()[..len]).unwrap()
    };
    let mut options = CompileOptions::processors(NonZeroUsize::new(2).unwrap());
    options.set("NUM_STREAMS", "2");
    let model = CompiledModel::compile(&graph("pair.xml"), &options).unwrap();
    let mut request = InferRequest::new(&model).unwrap();
    let mut run = |a, b| request.run(&[over(a), over(b)], &[OutputTarget::New, OutputTarget::Unread]);
    assert!(run(2, 2).is_ok() && run(2, 3).is_err() && model.is_broken());
    let error = run(2, 2).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("compiled again"), "{error}");
}

#[test]
fn a_model_with_open_shapes_has_one_request_at_a_time() {
    let model = compiled("affine.xml");
    let request = InferRequest::new(&model).unwrap();
    let error = InferRequest::new(&model).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("one request only"), "{error}");
    drop(request);
    InferRequest::new(&model).unwrap();
}
