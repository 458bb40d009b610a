//! The cost of decoding, in steps: it is linear in the length of the text, for any input.
use config::InputSpec;
use vocabulary::{DataType, TensorData};

use super::{generate, json, request};

/// The most steps for each byte of text. The decoder reads each byte a few times: once to check the grammar, and
/// possibly once more to read elements. It visits a member about ten times, because it searches for about ten names.
const STEPS_PER_BYTE: usize = 6;

/// How many times a pattern is repeated. A quadratic decoder would need a hundred times the permitted steps.
const REPEATED: usize = 8_000;

fn steps_of_infer(text: &str) -> usize {
    let regions = shared_memory::ClientRegions::forbidden();
    let context =
        request::DecodeContext { model: "m", max_input_size: 1 << 30, inputs: &[], regions: &regions };
    json::steps_of(|| request::decode(text.as_bytes(), &TensorData::default(), context)).0
}

fn steps_of_generate(text: &str) -> usize {
    let inputs = ["A", "B"].map(|name| InputSpec {
        name: name.into(),
        datatype: DataType::Int32,
        dims: [-1].as_slice().into(),
        reshape: None,
        optional: true,
        allow_ragged_batch: false,
        is_shape_tensor: false,
    });
    let schema = generate::Schema { inputs: &inputs, batched: false, max_input_size: 1 << 30 };
    json::steps_of(|| generate::decode(text.as_bytes(), schema)).0
}

fn check(what: &str, text: &str) {
    for (endpoint, steps) in [("infer", steps_of_infer(text)), ("generate", steps_of_generate(text))] {
        assert!(steps >= text.len() / 8, "{endpoint}, {what}: {steps} steps cannot have read {}", text.len());
        assert!(
            steps <= STEPS_PER_BYTE * text.len(),
            "{endpoint}, {what}: {steps} steps for {} bytes",
            text.len()
        );
    }
}

fn repeated(part: &str) -> String {
    vec![part; REPEATED].join(",")
}

fn numbered(part: impl Fn(usize) -> String) -> String {
    (0..REPEATED).map(part).collect::<Vec<_>>().join(",")
}

/// An infer request with one input whose members are `members`.
fn one_input(members: &str) -> String {
    format!(r#"{{"inputs":[{{{members}}}]}}"#)
}

#[test]
fn equal_keys_cost_no_more_than_others() {
    for member in [
        r#""data":[]"#,
        r#""data":[1,2]"#,
        r#""data":{}"#,
        r#""data":1"#,
        r#""shape":[1]"#,
        r#""shape":[1,1,1,1,1,1,1,1]"#,
        r#""datatype":"INT32""#,
        r#""name":"A""#,
        r#""parameters":{}"#,
        r#""parameters":{"binary_data_size":4}"#,
        r#""datatype":"INT32","shape":[1],"data":[1]"#,
        r#""data":[1],"shape":[1],"datatype":"INT32""#,
        r#""x":[1,{"data":[2]}]"#,
        r#""inputs":[{"data":[2]}]"#,
    ] {
        let members = repeated(member);
        check(member, &one_input(&members));
        check(member, &format!("{{{members}}}"));
        let complete = r#""name":"A","datatype":"INT32","shape":[1],"data":[1]"#;
        check(member, &one_input(&format!("{complete},{members}")));
        check(member, &one_input(&format!("{members},{complete}")));
        check(member, &format!(r#"{{"parameters":{{{members}}},"inputs":[{{{complete}}}]}}"#));
    }
    check("id", &format!("{{{}}}", repeated(r#""id":"x""#)));
    check("an input of a generate request", &format!("{{{}}}", repeated(r#""A":[1]"#)));
}

#[test]
fn many_inputs_outputs_and_parameters_are_read_once() {
    let inputs =
        numbered(|index| format!(r#"{{"name":"{index}","datatype":"INT8","shape":[1],"data":[1]}}"#));
    check("inputs", &format!(r#"{{"inputs":[{inputs}]}}"#));
    let late = numbered(|index| format!(r#"{{"name":"{index}","data":[1],"shape":[1],"datatype":"INT8"}}"#));
    check("inputs with late datatypes", &format!(r#"{{"inputs":[{late}]}}"#));
    let outputs = numbered(|index| format!(r#"{{"name":"{index}","parameters":{{"binary_data":true}}}}"#));
    check("outputs", &format!(r#"{{"inputs":[],"outputs":[{outputs}]}}"#));
    let same = repeated(r#"{"name":"OUT"}"#);
    check("equal outputs", &format!(r#"{{"inputs":[],"outputs":[{same}]}}"#));
    let parameters = numbered(|index| format!(r#""p{index}":{index}"#));
    check("parameters", &format!(r#"{{"parameters":{{{parameters}}},"inputs":[]}}"#));
    check("parameters of a generate request", &format!("{{{parameters}}}"));
    let unknown = numbered(|index| format!(r#""p{index}":{{"x":[{index}]}}"#));
    check("unknown members", &format!(r#"{{{unknown},"inputs":[]}}"#));
}

#[test]
fn nesting_and_strings_are_read_once() {
    let nested = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(100_000), close.repeat(100_000))
    };
    for value in [nested("[", "", "]"), nested("[", "1", "]"), nested(r#"{"data":"#, "1", "}")] {
        check("nesting", &value);
        check("nesting", &format!(r#"{{"x":{value},"A":{value}}}"#));
        check("nesting", &one_input(&format!(r#""datatype":"INT8","shape":[1],"data":{value}"#)));
        check("nesting", &one_input(&format!(r#""name":"A","data":{value},"shape":[1],"datatype":"INT8""#)));
    }
    for unit in [r"\n", r"\u00e9", r"\\", r"\ud83d\ude00", "x", "x\\\"", "é"] {
        let text = unit.repeat(100_000);
        check("strings", &format!(r#"{{"id":"{text}","x":"{text}","{text}":1}}"#));
        let bytes = format!(r#""name":"A","datatype":"BYTES","shape":[1],"data":["{text}"]"#);
        check("strings", &one_input(&bytes));
    }
    check("spaces", &format!(r#"{{{}"inputs":[]}}"#, " \n\t".repeat(100_000)));
}

#[test]
fn numbers_are_read_once() {
    for number in ["1", "-1", "1.5", "1e5", "0.30000000000000004", "123456789012345678901234567890"] {
        for datatype in ["INT32", "FP32", "FP64", "BOOL", "BYTES"] {
            let data = repeated(number);
            let shape = format!(r#""shape":[{REPEATED}]"#);
            check(
                number,
                &one_input(&format!(r#""name":"A","datatype":"{datatype}",{shape},"data":[{data}]"#)),
            );
        }
    }
    let long = "1".repeat(100_000);
    for number in [long.clone(), format!("0.{long}"), format!("1e{long}"), format!("-{long}.{long}e-{long}")]
    {
        check(
            "a long number",
            &one_input(&format!(r#""name":"A","datatype":"FP64","shape":[1],"data":[{number}]"#)),
        );
        check("a long number", &format!(r#"{{"x":{number}}}"#));
    }
}
