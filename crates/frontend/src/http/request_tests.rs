//! Decodes inference requests: the recorded exchanges, and arbitrary input that must do no harm.
use std::{num::NonZeroU64, time::Duration};

use bytes::Bytes;
use inference::{OutputSelection, RequestInputs, SequenceId};
use kserve::output::{Placement, RequestedOutput};
use proptest::prelude::*;
use shared_memory::ClientRegions;
use vocabulary::{DataType, Error, Parameter, TensorData};

use super::request::{DecodeContext, DecodedRequest, decode, raw};
use crate::error::status;

static NO_REGIONS: ClientRegions = ClientRegions::forbidden();

const CONTEXT: DecodeContext<'_> =
    DecodeContext { model: "simple", max_input_size: 1 << 20, inputs: &[], regions: &NO_REGIONS };

fn json(text: &str) -> Result<DecodedRequest, Error> {
    decode(text.as_bytes(), &TensorData::default(), CONTEXT)
}

fn with_binary(text: &str, binary: &'static [u8]) -> Result<DecodedRequest, Error> {
    decode(text.as_bytes(), &Bytes::from_static(binary).into(), CONTEXT)
}

/// The status and the text of the refusal.
fn refused(result: Result<DecodedRequest, Error>) -> (u16, String) {
    let error = result.expect_err("the request is refused");
    (status(error.code).as_u16(), error.message.into_owned())
}

/// A request with one INT32 input, and `rest` after its inputs.
fn one_input(rest: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[1],"data":[1]}}]{rest}}}"#)
}

#[test]
fn a_request_is_read_as_recorded() {
    let decoded = json(
        r#"{"id": "42", "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 4], "data": [0, 1, 2, 3]},
            {"name": "INPUT1", "datatype": "FP32", "shape": [1, 2], "data": [[1.5], [NaN]]}],
            "outputs": [{"name": "OUTPUT1", "parameters": {"binary_data": true}},
            {"name": "OUTPUT0", "parameters": {"classification": 3}}]}"#,
    )
    .unwrap();
    let request = decoded.request;
    assert_eq!(request.id, "42");
    assert_eq!(request.outputs.names(), ["OUTPUT1", "OUTPUT0"]);
    let [first, second] = request.tensors() else { panic!("two inputs") };
    assert_eq!(
        (first.name().as_str(), first.datatype(), first.shape()),
        ("INPUT0", DataType::Int32, &[1, 4][..])
    );
    assert_eq!(first.host().unwrap().contiguous()[..], [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(second.host().unwrap().contiguous()[..4], 1.5_f32.to_le_bytes());
    let binary = RequestedOutput { placement: Placement::Binary, classes: None };
    assert_eq!(decoded.requested_outputs.of("OUTPUT1"), binary);
    assert_eq!(
        decoded.requested_outputs.of("OUTPUT0"),
        RequestedOutput { placement: Placement::Json, classes: NonZeroU64::new(3) }
    );
    assert_eq!(decoded.requested_outputs.of("OTHER").placement, Placement::Json);
}

#[test]
fn the_order_of_members_does_not_matter_and_unknown_ones_are_ignored() {
    let decoded = json(
        r#"{"foo":[{"inputs":[[]]}],"outputs":[],"inputs":[{"data":["a"],"zzz":{"data":[1]},"shape":[1],
            "datatype":"BYTES","name":"IN"}],"inputs":5}"#,
    );
    let request = decoded.unwrap().request;
    assert_eq!(request.tensors()[0].host().unwrap().contiguous(), "\x01\0\0\0a");
    assert_eq!(request.outputs, OutputSelection::All);
}

/// Requests, and the status and text of their refusals.
const REFUSALS: &[(&str, u16, &str)] = &[
    ("hello", 500, "failed to parse the request JSON buffer: Invalid value. at 0"),
    ("[]", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    ("{}", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    (r#"{"inputs": {}}"#, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    (r#"{"id":5,"inputs":[]}"#, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
    (
        r#"{"inputs":[{"name":"A","datatype":"INT32","shape":[1]}]}"#,
        400,
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
             'shared_memory_region' in 'parameters'. But no field is set",
    ),
    (
        r#"{"inputs":[{"data":[1],"parameters":{"binary_data_size":4}}]}"#,
        400,
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
             'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'",
    ),
    (
        r#"{"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]}"#,
        500,
        "Unable to parse 'name': attempt to access non-existing object member 'name'",
    ),
    (
        r#"{"inputs":[{"name":"A","datatype":"INT32","shape":[-1,16],"data":[1]}]}"#,
        500,
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ),
    (
        r#"{"inputs":[{"name":"A","datatype":"INT32","data":[1]}]}"#,
        500,
        "Unable to parse 'shape': attempt to access non-existing object member 'shape'",
    ),
    (
        r#"{"inputs":[{"name":"INPUT0","datatype":"FOO","shape":[1],"data":[1]}]}"#,
        400,
        "invalid datatype for input INPUT0: 'FOO' is not a datatype, datatypes are BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16",
    ),
    (
        r#"{"inputs":[{"name":"INPUT0","datatype":"int32","shape":[1],"data":[1]}]}"#,
        400,
        "invalid datatype for input INPUT0: 'int32' is not a datatype, did you mean 'INT32'?",
    ),
    (
        r#"{"inputs":[{"name":"A","datatype":"FOO","shape":[0],"parameters":{"binary_data_size":0}}]}"#,
        400,
        "invalid datatype for input A: 'FOO' is not a datatype, datatypes are BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16",
    ),
    (
        r#"{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":5}]}"#,
        500,
        "Unable to parse 'data': attempt to access JSON non-array as array",
    ),
    (
        r#"{"inputs":[{"name":"A","datatype":"FP16","shape":[1],"data":[1]}]}"#,
        400,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input A",
    ),
    (
        r#"{"inputs":[{"name":"IN","datatype":"INT8","shape":[9223372036854775807,2],"data":[1]}]}"#,
        400,
        "invalid shape for input 'IN': shape [9223372036854775807,2] causes total element count to exceed maximum size of 9223372036854775807",
    ),
    (
        r#"{"inputs":[{"name":"IN","datatype":"INT8","shape":[18446744073709551615],"data":[1]}]}"#,
        400,
        "invalid shape for input 'IN': shape [-1] contains one or more invalid dimensions",
    ),
    (
        r#"{"inputs":[{"name":"IN","datatype":"FP64","shape":[4611686018427387904],"data":[1]}]}"#,
        400,
        "byte size overflow for input 'IN': element count (4611686018427387904) * data type size (8) exceeds maximum allowed size (9223372036854775807)",
    ),
    (
        r#"{"inputs":[{"name":"IN","datatype":"FP64","shape":[131073],"data":[1]}]}"#,
        400,
        "JSON input 'IN' has a byte_size (1048584 bytes) that exceeds the maximum allowed value of 1048576 bytes. Use --http-max-input-size to increase the limit.",
    ),
];

#[test]
fn refusals_are_those_of_the_reference() {
    for (text, code, message) in REFUSALS {
        assert_eq!(refused(json(text)), (*code, (*message).to_owned()), "{text}");
    }
}

#[test]
fn the_first_mistake_counts_but_grammar_comes_before_all() {
    let first =
        r#"{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":["x"]},{"name":"B","datatype":5}"#;
    assert!(refused(json(&format!("{first}]}}"))).1.contains("non-signed-integer"));
    assert!(refused(json(first)).1.contains("Missing a comma or ']'"));
    let outputs = one_input(r#","outputs":{},"parameters":[1]"#);
    assert_eq!(
        refused(json(&outputs)).1,
        "failed to get request params.: attempt to get members for non-object"
    );
}

#[test]
fn outputs_are_refused_as_in_the_reference() {
    let output = |parameters: &str| {
        refused(json(&one_input(&format!(r#","outputs":[{{"name":"OUT","parameters":{{{parameters}}}}}]"#))))
    };
    let uint = "attempt to access JSON non-unsigned-integer as unsigned-integer";
    for wrong in [r#""3""#, "-3"] {
        let expected = (500, format!("Unable to set 'classification': {uint}"));
        assert_eq!(output(&format!(r#""classification":{wrong}"#)), expected);
    }
    let expected = "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean";
    assert_eq!(output(r#""binary_data":1"#), (500, expected.into()));
    let shared = r#""shared_memory_region":"r","shared_memory_byte_size":8"#;
    for other in ["classification", "binary_data"] {
        let value = if other == "classification" { "1" } else { "true" };
        let expected = (400, format!("Output can't set both 'shared_memory_region' and '{other}'"));
        assert_eq!(output(&format!(r#"{shared},"{other}":{value}"#)), expected);
    }
    assert_eq!(output(shared), (404, "Unable to find shared memory region: 'r'".into()));
}

#[test]
fn a_shared_memory_input_finds_no_region() {
    let input = |parameters: &str| {
        let input = format!(r#"{{"name":"IN","datatype":"INT8","shape":[1],"parameters":{{{parameters}}}}}"#);
        refused(json(&format!(r#"{{"inputs":[{input}]}}"#)))
    };
    let sized = r#""shared_memory_region":"r","shared_memory_byte_size":1"#;
    assert_eq!(input(sized), (404, "Unable to find shared memory region: 'r'".into()));
    let text = "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string";
    assert_eq!(input(r#""shared_memory_region":5"#), (500, text.into()));
    let text = "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer";
    assert_eq!(input(&format!(r#"{sized},"shared_memory_offset":-1"#)), (500, text.into()));
    let text = "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'IN'";
    assert_eq!(input(r#""shared_memory_region":"r""#), (400, text.into()));
}

#[test]
fn parameters_have_their_meaning() {
    let request = |parameters: &str| json(&one_input(&format!(r#","parameters":{{{parameters}}}"#)));
    let decoded = request(
        r#""sequence_id":5,"sequence_start":true,"sequence_end":true,"priority":3,"timeout":1000000,
           "binary_data_output":true,"a":1,"a":2,"b":true,"c":"x","d":1.5,"u":18446744073709551615,"headers":"h""#,
    )
    .unwrap();
    let request_of = &decoded.request;
    assert_eq!(request_of.sequence.id, NonZeroU64::new(5).map(SequenceId::Number));
    assert!(request_of.sequence.start && request_of.sequence.end);
    assert_eq!((request_of.priority, request_of.timeout), (3, Some(Duration::from_secs(1))));
    assert_eq!(decoded.requested_outputs.default, Placement::Binary);
    let expected = [
        ("a".into(), Parameter::Int(1)),
        ("b".into(), Parameter::Bool(true)),
        ("c".into(), Parameter::String("x".into())),
        ("d".into(), Parameter::Double(1.5)),
        ("u".into(), Parameter::Double(18_446_744_073_709_551_615.0)),
        ("headers".into(), Parameter::String("h".into())),
    ];
    assert_eq!(request_of.parameters, expected);
    let text = request(r#""sequence_id":"abc""#).unwrap().request.sequence.id;
    assert_eq!(text, Some(SequenceId::Text("abc".into())));

    let uint = "attempt to access JSON non-unsigned-integer as unsigned-integer";
    for (parameters, code, message) in [
        (r#""priority":-1"#, 500, format!("Unable to parse 'priority': {uint}")),
        (r#""timeout":"1""#, 500, format!("Unable to parse 'timeout': {uint}")),
        (
            r#""sequence_id":true"#,
            500,
            "Unable to parse 'sequence_id': attempt to access JSON non-string as string".into(),
        ),
        (
            r#""sequence_start":1"#,
            500,
            "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean".into(),
        ),
        (
            r#""n":null"#,
            400,
            "parameter 'n' has invalid type. It should be either 'int', 'bool', or 'string'.".into(),
        ),
        (
            r#""n":[1]"#,
            400,
            "parameter 'n' has invalid type. It should be either 'int', 'bool', or 'string'.".into(),
        ),
        (
            r#""triton_x":1"#,
            400,
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
                .into(),
        ),
    ] {
        assert_eq!(refused(request(parameters)), (code, message), "{parameters}");
    }
}

#[test]
fn a_correlation_id_may_be_longer_than_128_characters() {
    let id = "x".repeat(1024);
    let decoded = json(&one_input(&format!(r#","parameters":{{"sequence_id":"{id}"}}"#))).unwrap();
    assert_eq!(decoded.request.sequence.id, Some(SequenceId::Text(id.as_str().into())));
}

#[test]
fn bytes_that_are_not_utf_8_are_replaced_and_refused_in_a_sequence_id() {
    let request = |rest: &[u8]| {
        let inputs = b"{\"inputs\":[{\"name\":\"\xff\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1]}]";
        let text = [&inputs[..], rest, b"}"].concat();
        decode(&text, &TensorData::default(), CONTEXT)
    };
    let decoded = request(b",\"id\":\"a\xff\",\"parameters\":{\"k\xfe\":\"\xfd\"}").unwrap().request;
    assert_eq!(decoded.id, "a\u{fffd}");
    assert_eq!(decoded.tensors()[0].name().as_str(), "\u{fffd}");
    assert_eq!(decoded.parameters, [("k\u{fffd}".into(), Parameter::String("\u{fffd}".into()))]);
    assert_eq!(
        refused(request(b",\"parameters\":{\"sequence_id\":\"\xff\"}")),
        (400, "Unable to parse 'sequence_id': the text is not UTF-8".into())
    );
}

#[test]
fn of_many_parameters_the_first_of_a_name_counts_too() {
    let many: Vec<String> = (0..1000).map(|index| format!(r#""p{}":{index}"#, index % 500)).collect();
    let decoded = json(&one_input(&format!(r#","parameters":{{{}}}"#, many.join(",")))).unwrap();
    assert_eq!(decoded.request.parameters.len(), 500);
    assert_eq!(decoded.request.parameters[7], ("p7".into(), Parameter::Int(7)));
}

const TWO_BINARY: &str = r#"{"inputs":[{"name":"A","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}},
    {"name":"B","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}}]}"#;

#[test]
fn binary_tensors_share_the_bytes_of_the_body() {
    let body = TensorData::from_pieces(["ab".into(), "cd".into(), "e".into()]);
    let decoded = decode(TWO_BINARY.as_bytes(), &body, CONTEXT).unwrap();
    let [first, second] = decoded.request.tensors() else { panic!("two inputs") };
    assert_eq!(first.host().unwrap().contiguous(), "abc");
    assert_eq!(second.host().unwrap().contiguous(), "de");
    assert_eq!(first.host().unwrap().pieces()[0].as_ptr(), body.pieces()[0].as_ptr());
}

#[test]
fn binary_tensors_must_use_up_the_body() {
    let text = "unexpected size for input 'B', expecting 1 additional bytes for model 'simple'";
    assert_eq!(refused(with_binary(TWO_BINARY, b"abcd")), (400, text.into()));
    let text = "unexpected additional input data for model 'simple'";
    assert_eq!(refused(with_binary(TWO_BINARY, b"abcdef")), (400, text.into()));
    assert_eq!(refused(with_binary(&one_input(""), b"x")), (400, text.into()));
    for size in [r#""64""#, "-64"] {
        let text = "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer";
        let request = TWO_BINARY.replacen(":3}", &format!(":{size}}}"), 1);
        assert_eq!(refused(with_binary(&request, b"abcde")), (500, text.into()));
    }
    let huge = TWO_BINARY.replacen(":3}", ":18446744073709551615}", 1);
    let text =
        "unexpected size for input 'A', expecting 18446744073709551610 additional bytes for model 'simple'";
    assert_eq!(refused(with_binary(&huge, b"abcde")), (400, text.into()));
}

#[test]
fn a_raw_request_is_its_body() {
    let decoded = raw(Bytes::from("hello").into(), CONTEXT).unwrap();
    assert!(matches!(&decoded.request.inputs, RequestInputs::Raw(data) if data.contiguous() == "hello"));
    assert_eq!(decoded.requested_outputs.of("any").placement, Placement::Binary);
    let text = "Raw input has a byte_size (5 bytes) that exceeds the maximum allowed value of 4 bytes. Use --http-max-input-size to increase the limit.";
    let context = DecodeContext { max_input_size: 4, ..CONTEXT };
    assert_eq!(refused(raw(Bytes::from("hello").into(), context)), (400, text.into()));
}

#[test]
fn a_tensor_without_elements_has_data_that_nobody_reads() {
    let decoded =
        json(r#"{"inputs":[{"name":"A","datatype":"FP16","shape":[1,0],"data":{"x":"y"}}]}"#).unwrap();
    assert!(decoded.request.tensors()[0].host().unwrap().is_empty());
}

/// Documents that serde_json also accepts, as text with irregular spacing.
fn document() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..8).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// The same value, read from the tree of this crate.
fn ours(value: super::json::JsonValue<'_>) -> serde_json::Value {
    use serde_json::Value;
    if let Ok(members) = value.members() {
        return members.map(|(key, value)| (String::from_utf8(key.to_vec()).unwrap(), ours(value))).collect();
    }
    if let Ok(elements) = value.elements() {
        return elements.map(ours).collect();
    }
    match value.as_number() {
        Some(super::json::Number::Int(number)) => return number.into(),
        Some(super::json::Number::Uint(number)) => return number.into(),
        Some(super::json::Number::Double(number)) => return number.into(),
        None => {}
    }
    value.as_text().map(Value::from).or_else(|_| value.as_bool().map(Value::from)).unwrap_or(Value::Null)
}

proptest! {
    #[test]
    fn what_serde_json_writes_we_read_back(document in document(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        let text = text.unwrap();
        let read = super::json::Document::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(ours(read.root()), document);
    }

    #[test]
    fn what_serde_json_refuses_we_refuse_unless_the_dialect_allows_it(text in "[\\[\\]{},:\"0-9.eE+ntrufalse \\\\-]{0,12}") {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        let ours = super::json::Document::parse(text.as_bytes()).is_ok();
        // Both parsers follow one grammar, with two exceptions. First, this alphabet can write lone surrogates. Second,
        // serde_json accepts numbers that overflow if it ignores them.
        prop_assert!(ours == theirs || (theirs && text.contains(['e', 'E', 'u'])), "{}", text);
    }

    #[test]
    fn a_tensor_is_the_same_before_and_behind_its_datatype(values in prop::collection::vec(any::<f64>(), 1..40)) {
        let data = serde_json::to_string(&values).unwrap();
        let len = values.len();
        let read = |text: String| match json(&text) {
            Ok(decoded) => Ok(decoded.request.tensors()[0].host().unwrap().contiguous()),
            Err(error) => Err(error),
        };
        for datatype in ["FP32", "FP64", "INT8", "BOOL", "BYTES"] {
            let (meta, data) = (format!(r#""name":"A","datatype":"{datatype}","shape":[{len}]"#), format!(r#""data":{data}"#));
            let before = read(format!(r#"{{"inputs":[{{{meta},{data}}}]}}"#));
            let behind = read(format!(r#"{{"inputs":[{{{data},{meta}}}]}}"#));
            prop_assert_eq!(before, behind);
        }
    }
}

/// A small random generator, so that the fuzzing below is reproducible.
struct TestRandom(u64);

impl TestRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    /// Changes, inserts, removes, copies or cuts bytes.
    fn mutate(&mut self, text: &mut Vec<u8>) {
        const TOKENS: [&[u8]; 16] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"",
            b"\\u",
            b"-1",
            b"1e999",
            b"NaN",
            b"null",
            b"data",
            b"18446744073709551616",
            b"\0",
            b"\xff",
        ];
        let at = self.roll(text.len() + 1);
        match self.roll(5) {
            0 if at < text.len() => text[at] = u8::try_from(self.roll(256)).unwrap(),
            1 => {
                let token = TOKENS[self.roll(TOKENS.len())];
                text.splice(at..at, token.iter().copied());
            }
            2 => {
                let end = (at + self.roll(8)).min(text.len());
                text.drain(at..end);
            }
            3 => {
                let end = (at + self.roll(40)).min(text.len());
                let copy = text[at..end].to_vec();
                let to = self.roll(text.len() + 1);
                text.splice(to..to, copy);
            }
            _ => text.truncate(at.max(1)),
        }
    }
}

/// Decodes 2,000 mutations of each valid request, or `NEREID_FUZZ_ROUNDS`. No mutation may cause a panic.
#[test]
fn mutated_requests_do_no_harm() {
    let rounds = std::env::var("NEREID_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let seeds = [
        one_input(r#","id":"x","parameters":{"sequence_id":5,"a":"b"},"outputs":[{"name":"O","parameters":{"classification":2}}]"#),
        TWO_BINARY.to_owned(),
        r#"{"inputs":[{"data":[["a","\u00e9"],[]],"datatype":"BYTES","shape":[2],"name":"A"}]}"#.to_owned(),
        r#"{"inputs":[{"name":"A","datatype":"FP32","shape":[2,2],"data":[[1e-3,-Infinity],[0.1,12345678901234567890]]}]}"#.to_owned(),
    ];
    let mut dice = TestRandom(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for _ in 0..rounds {
        for seed in &seeds {
            let mut text = seed.clone().into_bytes();
            for _ in 0..=dice.roll(4) {
                dice.mutate(&mut text);
            }
            accepted += usize::from(decode(&text, &Bytes::from_static(b"abcde").into(), CONTEXT).is_ok());
            accepted += usize::from(decode(&text, &TensorData::default(), CONTEXT).is_ok());
        }
    }
    assert!(accepted > 0, "some mutations are harmless");
}
