//! The conversion of generate requests: names, shapes, parameters, and refusals.
use std::{num::NonZeroU64, time::Duration};

use config::InputSpec;
use inference::{Request, SequenceId};
use vocabulary::{DataType, Error, Parameter};

use super::request::{Schema, decode, spread};
use crate::error::status;

fn input(name: &str, datatype: DataType, dims: &[i64]) -> InputSpec {
    InputSpec {
        name: name.into(),
        datatype,
        dims: dims.into(),
        reshape: None,
        optional: true,
        allow_ragged_batch: false,
        is_shape_tensor: false,
    }
}

fn inputs() -> [InputSpec; 5] {
    [
        input("text_input", DataType::Bytes, &[1]),
        input("n", DataType::Int32, &[1]),
        input("stream", DataType::Bool, &[1]),
        input("weights", DataType::Fp32, &[-1, 2]),
        input("half", DataType::Fp16, &[-1]),
    ]
}

fn convert(json: &str, batched: bool) -> Result<Request, Error> {
    decode(json.as_bytes(), Schema { inputs: &inputs(), batched, max_input_size: 1 << 20 })
}

fn read(json: &str) -> Request {
    convert(json, false).unwrap()
}

/// The status and the text of the refusal.
fn refused(json: &str) -> (u16, String) {
    let error = convert(json, false).expect_err("the request is refused");
    (status(error.code).as_u16(), error.message.into_owned())
}

/// The shape of `weights`, with and without a batch dimension.
fn shapes(weights: &str) -> [Option<Vec<i64>>; 2] {
    let json = format!(r#"{{"weights":{weights}}}"#);
    [false, true]
        .map(|batched| convert(&json, batched).ok().map(|request| request.tensors()[0].shape().to_vec()))
}

#[test]
fn names_tell_inputs_from_parameters() {
    let request = read(
        r#"{"id": "7", "text_input": "hi", "n": 3, "stream": false, "temperature": 0.5,
            "parameters": {"top_k": 4, "flag": true, "s": "x", "weights": [1, 2]}}"#,
    );
    assert_eq!(request.id, "7");
    let shown: Vec<_> = request
        .tensors()
        .iter()
        .map(|tensor| (tensor.name().as_str(), tensor.shape(), tensor.host().unwrap().contiguous().to_vec()))
        .collect();
    let weights: Vec<u8> = [1.0_f32, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let expected = [
        ("text_input", &[1][..], b"\x02\0\0\0hi".to_vec()),
        ("n", &[1], vec![3, 0, 0, 0]),
        ("stream", &[1], vec![0]),
        ("weights", &[1, 2], weights),
    ];
    assert_eq!(shown, expected);
    let parameters = [
        ("id".into(), Parameter::String("7".into())),
        ("temperature".into(), Parameter::Double(0.5)),
        ("top_k".into(), Parameter::Int(4)),
        ("flag".into(), Parameter::Bool(true)),
        ("s".into(), Parameter::String("x".into())),
    ];
    assert_eq!(request.parameters, parameters);
}

#[test]
fn a_flat_array_is_spread_over_the_dimensions() {
    for (weights, plain, batched) in [
        ("[1,2]", Some(vec![1, 2]), Some(vec![1, 1, 2])),
        ("[1,2,3,4,5,6]", Some(vec![3, 2]), Some(vec![1, 3, 2])),
        ("[]", Some(vec![0, 2]), Some(vec![1, 0, 2])),
        ("[1,2,3]", None, None),
        ("1", None, None),
    ] {
        assert_eq!(shapes(weights), [plain, batched], "{weights}");
    }
    let text = "The schema can not convert input 'text_input' to tensor with proper shape";
    assert_eq!(refused(r#"{"text_input": ["hi", "yo"]}"#), (400, text.into()));
    assert_eq!(refused(r#"{"text_input": []}"#), (400, text.into()));
    let batch = convert(r#"{"text_input": ["hi", "yo"]}"#, true).unwrap();
    assert_eq!(batch.tensors()[0].shape(), [2, 1]);
}

#[test]
fn every_fixed_dimension_must_divide_the_number_of_elements() {
    let dims = |count, dims: &[i64]| spread(count, dims).map(|shape| shape.to_vec());
    assert_eq!(dims(24, &[-1, 2, -1, 3]), Some(vec![1, 2, 4, 3]));
    assert_eq!(dims(6, &[3, 2]), Some(vec![3, 2]));
    assert_eq!(dims(12, &[3, 2]), None);
    assert_eq!(dims(1, &[]), Some(vec![]));
    assert_eq!(dims(2, &[]), None);
    assert_eq!(dims(0, &[0]), Some(vec![0]));
    assert_eq!(dims(1, &[-1, 0]), None);
}

#[test]
fn nested_arrays_define_the_shape() {
    for (weights, plain, batched) in [
        ("[[1,2],[3,4]]", vec![2, 2], vec![1, 2, 2]),
        ("[[1,2,3]]", vec![1, 3], vec![1, 1, 3]),
        ("[[[1,2]],[[3,4]]]", vec![2, 1, 2], vec![2, 1, 2]),
    ] {
        assert_eq!(shapes(weights), [Some(plain), Some(batched)], "{weights}");
    }
    let text = "The schema can not convert input 'weights' to tensor with proper shape: its arrays differ in length \
                or depth";
    assert_eq!(refused(r#"{"weights": [[1,2],[3]]}"#), (400, text.into()));
}

#[test]
fn arrays_of_single_elements_are_spread_where_their_nesting_does_not_fit() {
    for (weights, plain, batched) in [
        ("[[1],[2]]", Some(vec![1, 2]), Some(vec![1, 1, 2])),
        ("[[[1]],[[2]],[[3]],[[4]]]", Some(vec![2, 2]), Some(vec![1, 2, 2])),
        ("[[[1]]]", None, None),
    ] {
        assert_eq!(shapes(weights), [plain, batched], "{weights}");
    }
    let one = convert(r#"{"text_input": [[["hi"]]]}"#, false).unwrap();
    assert_eq!(one.tensors()[0].shape(), [1]);
}

#[test]
fn an_element_of_another_type_is_refused_with_the_text_of_its_datatype() {
    let signed = "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer";
    for (value, given) in [
        ("1.5", "a number of another kind"),
        ("null", "null"),
        (r#""1""#, "a string"),
        ("{}", "an object"),
        ("[true]", "a boolean"),
        (r#"[{"n":1}]"#, "an object"),
    ] {
        let text = format!("{signed}: input 'n' has {given} at [0], where INT32 is needed");
        assert_eq!(refused(&format!(r#"{{"n":{value}}}"#)), (500, text), "{value}");
    }
    let text = "Unable to parse JSON bytes array: attempt to access JSON non-string as string: input 'text_input' has a \
                number of another kind at [0], where BYTES is needed";
    assert_eq!(refused(r#"{"text_input": 1}"#), (500, text.into()));
    let text =
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input half";
    assert_eq!(refused(r#"{"half": [1]}"#), (400, text.into()));
    assert_eq!(refused(r#"{"half": 1}"#), (400, text.into()));
}

#[test]
fn controls_have_their_meaning_and_reach_the_model() {
    let request = read(
        r#"{"sequence_id": 5, "sequence_start": true, "parameters": {"sequence_end": true, "priority": 2},
            "timeout": 1500, "triton_x": 1}"#,
    );
    let step = &request.sequence;
    let id = NonZeroU64::new(5).map(SequenceId::Number);
    assert_eq!((step.id.clone(), step.start, step.end), (id, true, true));
    assert_eq!((request.priority, request.timeout), (2, Some(Duration::from_micros(1500))));
    let names: Vec<_> = request.parameters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "triton_x"]);
    let text = "Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer";
    assert_eq!(refused(r#"{"priority": "high"}"#), (500, text.into()));
}

#[test]
fn of_equal_parameters_the_first_counts() {
    let request =
        read(r#"{"n": 1, "a": 1, "a": 2, "parameters": {"a": 3, "b": 4}, "b": 5, "parameters": {"c": 6}}"#);
    assert_eq!(request.tensors().len(), 1);
    let parameters = [("a".into(), Parameter::Int(1)), ("b".into(), Parameter::Int(4))];
    assert_eq!(request.parameters, parameters);
}

#[test]
fn an_input_is_given_once() {
    let text = "[request id: 7] input 'n' already exists in request";
    for json in [r#"{"n": 1, "id": "7", "n": [2]}"#, r#"{"n": 1, "parameters": {"n": 1}, "id": "7"}"#] {
        let text = if json.contains("parameters") {
            format!("Converting keyword: 'parameters': {text}")
        } else {
            text.to_owned()
        };
        assert_eq!(refused(json), (400, text), "{json}");
    }
    assert_eq!(refused(r#"{"n": 1, "n": 1}"#).1, text.replace("7", "<id_unknown>"));
}

#[test]
fn what_is_no_request_is_refused_with_the_reference_texts() {
    for (json, status, text) in [
        ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
        ("[]", 500, "attempt to get members for non-object"),
        (r#"{"id": 1}"#, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (
            r#"{"a": null}"#,
            400,
            "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            r#"{"parameters": [1]}"#,
            500,
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
        ),
        (
            r#"{"parameters": {"parameters": {}}}"#,
            400,
            "Converting keyword: 'parameters': parameter 'parameters' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            r#"{"parameters": {"n": [1, 2]}}"#,
            400,
            "Converting keyword: 'parameters': The schema can not convert input 'n' to tensor with proper shape",
        ),
    ] {
        assert_eq!(refused(json), (status, text.into()), "{json}");
    }
}

#[test]
fn an_input_may_have_any_reserved_name_except_one() {
    let inputs = ["id", "priority", "parameters"].map(|name| input(name, DataType::Int32, &[1]));
    let read = |json: &str| {
        decode(json.as_bytes(), Schema { inputs: &inputs, batched: false, max_input_size: 1 << 20 })
    };
    let request = read(r#"{"id": 1, "priority": -5}"#).unwrap();
    assert_eq!((request.tensors().len(), request.id.as_str(), request.priority), (2, "", 0));
    let text = "Keyword 'parameters' for nested schema also given as input tensor name";
    assert_eq!(read(r#"{"parameters": 1}"#).unwrap_err(), Error::invalid(text));
}

#[test]
fn all_inputs_together_are_limited() {
    let inputs = inputs();
    let read =
        |json: &str| decode(json.as_bytes(), Schema { inputs: &inputs, batched: false, max_input_size: 20 });
    assert!(read(r#"{"weights": [1,2,3,4], "n": 1}"#).is_ok());
    let text = "request size of 21 bytes with input 'stream' of size 1 bytes exceeds the maximum allowed input size \
                of 20. Use --http-max-input-size to increase the limit.";
    let refused = read(r#"{"weights": [1,2,3,4], "n": 1, "stream": true}"#).unwrap_err();
    assert_eq!(refused, Error::invalid(text));
}

proptest::proptest! {
    #[test]
    fn no_generate_request_causes_a_panic(json in r#"(\{("(text_input|n|weights|parameters|id|x)":(-?[0-9]{1,3}|"a"|null|[\[\]{}1,]{0,9}),?){0,4}\}?)|.{0,40}"#) {
        let _ = convert(&json, true);
    }

    #[test]
    fn spread_elements_fill_their_shape(count in 0..5000_i64, dims in proptest::collection::vec(-1..7_i64, 0..5)) {
        if let Some(shape) = spread(count, &dims) {
            proptest::prop_assert_eq!(shape.iter().product::<i64>(), count);
            let kept = shape.iter().zip(&dims).all(|(dim, wanted)| *wanted < 0 || dim == wanted);
            proptest::prop_assert!(kept);
        }
    }
}
