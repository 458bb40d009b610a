//! Inputs that are made, and those of files: what requests hold, and what is refused with its place.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use crate::inputs::{RunInputs, prepare};
use crate::model::TargetModel;
use crate::options::{self, InputContent, PerfOptions};
use crate::tensors::InputTensor;

/// A model with one input `IN` and one output `OUT` of a datatype and a shape.
fn model(datatype: &str, shape: &[i64], max_batch_size: u64) -> TargetModel {
    let tensor = |name: &str| json!({"name": name, "datatype": datatype, "shape": shape});
    let metadata = json!({"inputs": [tensor("IN")], "outputs": [tensor("OUT")]});
    let config = json!({"max_batch_size": max_batch_size});
    TargetModel::from_json(metadata.to_string().as_bytes(), config.to_string().as_bytes()).unwrap()
}

fn options(line: &str) -> PerfOptions {
    options::parse("perf -m m".split(' ').chain(line.split_whitespace()).map(Into::into)).unwrap()
}

/// The inputs of a file with that content.
fn of_file(model: &TargetModel, line: &str, content: &str) -> Result<RunInputs, String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("input.json");
    fs::write(&path, content).unwrap();
    let options = PerfOptions { content: InputContent::Files(vec![path]), ..options(line) };
    prepare(model, &options).map_err(|error| format!("{error:#}"))
}

/// The only input of each request.
fn sent(inputs: &RunInputs) -> Vec<&InputTensor> {
    inputs.requests.iter().map(|tensors| &tensors[0]).collect()
}

fn bytes(inputs: &RunInputs) -> Vec<Vec<u8>> {
    sent(inputs).iter().map(|tensor| tensor.bytes.to_vec()).collect()
}

#[test]
fn zero_tensors_have_the_size_of_their_shape() {
    for (datatype, size) in [("BOOL", 6), ("FP16", 12), ("INT32", 24), ("FP64", 48), ("BYTES", 24)] {
        let inputs = prepare(&model(datatype, &[2, 3], 0), &options("--input-data zero")).unwrap();
        assert_eq!(sent(&inputs)[0].bytes.len(), size, "{datatype}");
    }
    let inputs = prepare(&model("FP32", &[0, 3], 0), &options("-z")).unwrap();
    assert!(sent(&inputs)[0].bytes.is_empty());
}

#[test]
fn random_tensors_repeat_with_the_seed_and_have_a_json_form() {
    for datatype in ["BOOL", "UINT8", "INT64", "FP32", "FP64", "BYTES"] {
        let of_seed = |seed: u64| {
            let inputs = prepare(&model(datatype, &[8], 0), &options(&format!("--seed {seed}"))).unwrap();
            inputs.requests[0][0].clone()
        };
        let tensor = of_seed(1);
        assert_eq!(tensor.bytes, of_seed(1).bytes, "{datatype}");
        assert_ne!(tensor.bytes, of_seed(2).bytes, "{datatype}");
        let json: serde_json::Value = serde_json::from_str(&tensor.to_json().unwrap()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 8, "{datatype}");
    }
    for datatype in ["FP16", "BF16"] {
        let inputs = prepare(&model(datatype, &[8], 0), &options("")).unwrap();
        assert_eq!(sent(&inputs)[0].bytes.len(), 16);
        assert!(sent(&inputs)[0].to_json().unwrap_err().to_string().contains("no JSON form"));
    }
}

#[test]
fn texts_have_the_length_or_the_content_of_the_command_line() {
    let texts =
        |line: &str| prepare(&model("BYTES", &[2], 0), &options(line)).unwrap().requests[0][0].clone();
    assert_eq!(texts("").bytes.len(), 2 * (4 + 128));
    assert_eq!(texts("--string-length 5").bytes.len(), 2 * (4 + 5));
    assert_eq!(texts("--string-data ab").to_json().unwrap(), r#"["ab","ab"]"#);
}

#[test]
fn values_of_a_file_come_back_as_json() {
    for (datatype, values) in [
        ("INT8", "[-128,127]"),
        ("INT64", "[-9223372036854775808,9223372036854775807]"),
        ("UINT64", "[0,18446744073709551615]"),
        ("FP32", "[0.1,-2.0]"),
        ("FP64", "[1e-300,2.5]"),
        ("BOOL", "[true,false]"),
        ("BYTES", r#"["a\"b",""]"#),
    ] {
        for content in [
            format!(r#"{{"IN":{values}}}"#),
            format!(r#"{{"data":[{{"IN":{values}}}]}}"#),
            format!(r#"{{"data":[{{"IN":{{"content":{values},"shape":[2]}}}}]}}"#),
        ] {
            let inputs = of_file(&model(datatype, &[2], 0), "", &content).unwrap();
            assert_eq!(sent(&inputs)[0].to_json().unwrap(), values, "{datatype}");
        }
    }
}

#[test]
fn half_precision_is_rounded() {
    let inputs = of_file(&model("FP16", &[2], 0), "", r#"{"IN":[1.0,-2.5]}"#).unwrap();
    assert_eq!(bytes(&inputs), [[0x00, 0x3c, 0x00, 0xc1]]);
    let inputs = of_file(&model("BF16", &[1], 0), "", r#"{"IN":[1.0]}"#).unwrap();
    assert_eq!(bytes(&inputs), [[0x80, 0x3f]]);
}

#[test]
fn short_files_repeat_a_part_over_the_batch_and_each_object_is_a_request() {
    let model = model("UINT8", &[-1, 2], 8);
    let inputs = of_file(&model, "-b 3", r#"{"IN":[1,2]}"#).unwrap();
    assert_eq!(bytes(&inputs), [[1, 2, 1, 2, 1, 2]]);
    assert_eq!(sent(&inputs)[0].input.shape, [3, 2]);
    let inputs = of_file(&model, "", r#"[{"IN":[1,2]},{"IN":[3,4]}]"#).unwrap();
    assert_eq!(bytes(&inputs), [[1, 2], [3, 4]]);
}

#[test]
fn a_batch_takes_steps_that_follow_each_other() {
    let model = model("UINT8", &[-1, 1], 8);
    let content = r#"{"data":[{"IN":[1]},{"IN":[2]},{"IN":[3]}]}"#;
    let inputs = of_file(&model, "-b 2", content).unwrap();
    assert_eq!(bytes(&inputs), [[1, 2], [3, 1], [2, 3]]);
    assert_eq!(sent(&inputs)[0].input.shape, [2, 1]);
}

#[test]
fn content_may_be_base64_and_may_have_a_shape() {
    let model = model("INT32", &[-1, -1], 0);
    let content = r#"{"data":[
        {"IN":{"content":[1,2,3,4,5,6],"shape":[2,3]}},
        {"IN":{"content":{"b64":"AQAAAAIAAAA="},"shape":[1,2]}},
        {"IN":{"content":[[1,2],[3,4]],"shape":[2,2]}}]}"#;
    let inputs = of_file(&model, "", content).unwrap();
    let shapes: Vec<_> = sent(&inputs).iter().map(|tensor| tensor.input.shape.clone()).collect();
    assert_eq!(shapes, [[2, 3], [1, 2], [2, 2]]);
    assert_eq!(bytes(&inputs)[1], [1, 0, 0, 0, 2, 0, 0, 0]);
    let inputs = of_file(&model, "--shape IN:1,1", r#"{"data":[{"IN":{"b64":"AQAAAA=="}}]}"#).unwrap();
    assert_eq!(bytes(&inputs), [[1, 0, 0, 0]]);
}

#[test]
fn the_number_of_values_gives_a_single_variable_dimension() {
    let inputs = of_file(&model("UINT8", &[-1, 2], 0), "", r#"{"data":[{"IN":[1,2,3,4,5,6]}]}"#).unwrap();
    assert_eq!(sent(&inputs)[0].input.shape, [3, 2]);
}

#[test]
fn streams_stay_apart_for_sequences_only() {
    let content = r#"{"data":[[{"IN":[1]},{"IN":[2]}],[{"IN":[3]}]]}"#;
    let mut model = model("UINT8", &[1], 0);
    assert_eq!(of_file(&model, "", content).unwrap().streams, [[0, 1, 2]]);
    model.traits.has_sequences = true;
    assert_eq!(of_file(&model, "", content).unwrap().streams, [vec![0, 1], vec![2]]);
}

#[test]
fn validation_data_stands_beside_its_step() {
    let model = model("UINT8", &[-1, 1], 8);
    let content = r#"{"data":[{"IN":[1]},{"IN":[2]}],"validation_data":[{"OUT":[5]},{"OUT":[6]}]}"#;
    let inputs = of_file(&model, "-b 2", content).unwrap();
    let expected = &inputs.expected[0][0];
    assert_eq!((expected.name.as_str(), &expected.bytes[..]), ("OUT", &[5, 6][..]));
    assert!(of_file(&model, "", r#"{"data":[{"IN":[1]}]}"#).unwrap().expected.is_empty());
}

#[test]
fn optional_inputs_may_be_missing() {
    let mut model = model("UINT8", &[1], 0);
    let content = r#"{"data":[{}]}"#;
    assert!(of_file(&model, "", content).err().unwrap().contains("input 'IN' is missing"));
    model.traits.optional_inputs.insert("IN".into());
    assert!(of_file(&model, "", content).unwrap().requests[0].is_empty());
}

#[test]
fn a_file_that_does_not_fit_is_refused_with_its_place() {
    for (datatype, content, word) in [
        ("FP32", "{}", "input 'IN': is missing"),
        ("FP32", r#"{"IN":[]}"#, "takes 4"),
        ("FP32", r#"{"IN":[1,2,3]}"#, "takes 4"),
        ("UINT8", r#"{"IN":[256]}"#, "value 256: does not fit"),
        ("INT8", r#"{"IN":[128]}"#, "does not fit"),
        ("INT8", r#"{"IN":["x"]}"#, "not an integer"),
        ("FP32", "[", "not JSON"),
        ("FP32", "[]", "no request"),
        ("COMPLEX", r#"{"IN":[1]}"#, "unknown datatype"),
        ("UINT8", r#"{"data":[{"IN":[1,2,3,4]},{"IN":[1,2,3]}]}"#, "data[1]: input 'IN': has 3 values"),
        ("UINT8", r#"{"data":[[{"IN":[1,2,3,4]},{"IN":[-1]}]]}"#, "data[0][1]: input 'IN': value -1"),
        ("UINT8", r#"{"data":[{"OTHER":[1]}]}"#, "data[0]: the model has no input 'OTHER'"),
        ("UINT8", r#"{"data":[[]]}"#, "data[0] is a stream without a step"),
        ("UINT8", r#"{"data":[{"IN":{"shape":[4]}}]}"#, "has no 'content'"),
        ("UINT8", r#"{"data":[{"IN":{"content":[1],"shape":["x"]}}]}"#, "'shape' is an array"),
        ("UINT8", r#"{"data":[{"IN":{"b64":"?"}}]}"#, "'b64' is not base64"),
        ("INT32", r#"{"data":[{"IN":{"b64":"AQAA"}}]}"#, "3 bytes end inside an element"),
        ("BYTES", r#"{"data":[{"IN":{"b64":"CQAAAGE="}}]}"#, "end inside a text"),
        ("UINT8", r#"{"data":[{"IN":[1,2,3,4]}],"validation_data":[]}"#, "'validation_data' needs"),
        (
            "UINT8",
            r#"{"data":[{"IN":[1,2,3,4]}],"validation_data":[{"NO":[1]}]}"#,
            "data[0]: validation_data: the model has no output 'NO'",
        ),
    ] {
        let error = of_file(&model(datatype, &[4], 0), "", content).err().expect(content);
        assert!(error.contains(word) && error.contains("input.json"), "{datatype} {content}: {error}");
    }
}

/// The inputs of a directory with these files.
fn of_directory(model: &TargetModel, files: &[(&str, &[u8])]) -> Result<RunInputs, String> {
    let folder = TempDir::new().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let content = InputContent::Files(vec![PathBuf::from(folder.path())]);
    prepare(model, &PerfOptions { content, ..options("") }).map_err(|error| format!("{error:#}"))
}

#[test]
fn a_directory_has_a_file_for_each_input() {
    let inputs = of_directory(&model("UINT8", &[2], 0), &[("IN", &[1, 2]), ("OUT", &[3, 4])]).unwrap();
    assert_eq!(bytes(&inputs), [[1, 2]]);
    assert_eq!(&inputs.expected[0][0].bytes[..], [3, 4]);
    let inputs = of_directory(&model("BYTES", &[2], 0), &[("IN", b"a\nbc\n")]).unwrap();
    assert_eq!(sent(&inputs)[0].to_json().unwrap(), r#"["a","bc"]"#);
}

#[test]
fn a_directory_that_does_not_fit_is_refused() {
    let model = model("UINT8", &[2], 0);
    for (files, word) in [
        (&[("IN", &[1, 2, 3][..])][..], "file 'IN': has 3 values"),
        (&[("IN", &[1, 2][..]), ("X", &[][..])][..], "'X' is the name of no input"),
        (&[][..], "there is no file 'IN'"),
    ] {
        let error = of_directory(&model, files).err().unwrap();
        assert!(error.contains(word), "{error}");
    }
}
