//! The requests of the generate extension: one JSON object, whose members are the inputs by their names, and parameters.
//!
//! A scalar or a flat array tells the server no shape: the server spreads the elements over the dimensions of the model.
//! Where that gives another shape than the one wanted, arrays inside of arrays tell the shape. Nereid takes them, other
//! servers may refuse them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::HeaderName;

use super::members::{json_of_sequence, json_parameters};
use crate::http_request::{headers, model_path, sequence_header};
use crate::model::TargetModel;
use crate::options::PerfOptions;
use crate::sequences::PlannedPosition;
use crate::tensors::InputTensor;

/// A request for a stream of events, in its parts.
pub(crate) struct GenerateTemplate {
    /// The request line and the headers that do not depend on the body.
    head: String,
    /// The members of the object.
    members: String,
    sequence_header: Option<HeaderName>,
}

/// The member whose own members are inputs and parameters.
const NESTED: &str = "parameters";
const OF_SEQUENCE: [&str; 3] = ["sequence_id", "sequence_start", "sequence_end"];

impl GenerateTemplate {
    /// # Errors
    /// An input has no JSON form, or two members would have the same name.
    pub(crate) fn new(
        options: &PerfOptions,
        model: &TargetModel,
        tensors: &[InputTensor],
    ) -> Result<GenerateTemplate> {
        check_names(options, model, tensors)?;
        let mut members = Vec::new();
        for tensor in tensors {
            let name = &tensor.input.name;
            let value = value(tensor, model);
            let cannot = || format!("input '{name}' cannot be in a generate request: use --protocol grpc");
            members.push(format!("{}:{}", serde_json::to_string(name)?, value.with_context(cannot)?));
        }
        members.push(json_parameters(options, false)?);
        members.retain(|member| !member.is_empty());
        let kinds = "Accept: text/event-stream\r\nContent-Type: application/json\r\n";
        let path = model_path(options);
        let head = format!("POST {path}/generate_stream HTTP/1.1\r\n{}{kinds}", headers(options));
        let sequence_header = options.sequences.header.clone();
        Ok(GenerateTemplate { head, members: members.join(","), sequence_header })
    }

    /// The whole request, head and body.
    pub(crate) fn request(&self, position: Option<&PlannedPosition>) -> Bytes {
        let Self { head, members, .. } = self;
        let told = sequence_header(self.sequence_header.as_ref(), position);
        let of_sequence = position.map(json_of_sequence).unwrap_or_default();
        let comma = if members.is_empty() || of_sequence.is_empty() { "" } else { "," };
        let length = members.len() + comma.len() + of_sequence.len() + 2;
        format!("{head}{told}Content-Length: {length}\r\n\r\n{{{members}{comma}{of_sequence}}}").into()
    }
}

/// Of members with the same name, servers take one, or refuse the request.
fn check_names(options: &PerfOptions, model: &TargetModel, tensors: &[InputTensor]) -> Result<()> {
    let inputs = tensors.iter().map(|tensor| tensor.input.name.as_str());
    let given = options.parameters.iter().map(|(name, _)| name.as_str());
    let has_sequences = model.traits.has_sequences || options.sequences.of_one_request;
    let of_sequence = OF_SEQUENCE.into_iter().filter(|_| has_sequences);
    let mut names = BTreeSet::new();
    for name in inputs.chain(given).chain(of_sequence) {
        ensure!(name != NESTED, "no input and no parameter of a generate request can have the name '{name}'");
        ensure!(names.insert(name), "a generate request cannot have two inputs or parameters '{name}'");
    }
    Ok(())
}

/// The JSON of a tensor.
fn value(tensor: &InputTensor, model: &TargetModel) -> Result<String> {
    let shape = &tensor.input.shape;
    if shape.iter().all(|&size| size == 1) {
        let json = tensor.to_json()?;
        return Ok(json[1..json.len() - 1].to_owned());
    }
    let dimensions = model.inputs.iter().find(|input| input.name == tensor.input.name);
    if dimensions.is_some_and(|input| spread(shape.iter().product(), &input.shape).as_ref() == Some(shape)) {
        return tensor.to_json();
    }
    ensure!(!shape.contains(&0), "no array without elements tells the shape {shape:?}");
    let sizes = (1..shape.len()).map(|inner| usize::try_from(shape[inner..].iter().product::<i64>()));
    tensor.to_nested_json(&sizes.collect::<Result<Vec<_>, _>>()?)
}

/// The shape that a server gives to a flat array: sizes of the model stay, the innermost free dimension takes the rest, and
/// other free dimensions are 1. `None` if the server refuses the array.
fn spread(elements: i64, dimensions: &[i64]) -> Option<Vec<i64>> {
    let mut fixed = dimensions.iter().filter(|&&size| size >= 0);
    let fixed = fixed.try_fold(1_i64, |product, &size| product.checked_mul(size))?;
    let mut rest = match fixed {
        0 if elements == 0 => 1,
        fixed => (elements.checked_rem(fixed)? == 0).then(|| elements / fixed)?,
    };
    let mut shape = dimensions.to_vec();
    for size in shape.iter_mut().rev().filter(|size| **size < 0) {
        *size = std::mem::replace(&mut rest, 1);
    }
    (rest == 1).then_some(shape)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::elements::push_text;
    use crate::model::{ModelInput, ModelTraits};
    use crate::options;

    fn options(line: &str) -> PerfOptions {
        options::parse(["perf"].into_iter().chain(line.split_whitespace()).map(Into::into)).unwrap()
    }

    fn input(name: &str, datatype: &str, shape: &[i64]) -> ModelInput {
        ModelInput { name: name.into(), datatype: datatype.into(), shape: shape.to_vec() }
    }

    fn model(inputs: Vec<ModelInput>, has_sequences: bool) -> TargetModel {
        let traits = ModelTraits { has_sequences, ..ModelTraits::default() };
        TargetModel { inputs, outputs: Vec::new(), max_batch_size: 8, traits }
    }

    fn texts(texts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        texts.iter().for_each(|text| push_text(&mut bytes, text));
        bytes
    }

    fn tensor(input: ModelInput, bytes: Vec<u8>) -> InputTensor {
        InputTensor { input, bytes: bytes.into() }
    }

    /// The JSON of an input of so many elements of this shape, for a model of these dimensions.
    fn sent(dimensions: &[i64], shape: &[i64]) -> Result<Value, String> {
        let elements = (0..shape.iter().product::<i64>()).map(|element| element as u8);
        let tensor = tensor(input("IN", "UINT8", shape), elements.collect());
        let json = value(&tensor, &model(vec![input("IN", "UINT8", dimensions)], false));
        let json = json.map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&json).unwrap())
    }

    fn head_and_body(request: &[u8]) -> (String, Value) {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let body = &request[end + 4..];
        let head = String::from_utf8(request[..end].to_vec()).unwrap();
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        (head, serde_json::from_slice(body).unwrap())
    }

    #[test]
    fn inputs_and_parameters_are_members_by_their_names() {
        let line = "-m my/<m> -x 2 -u host:1 --streaming -H Token:x --request-parameter a:1:int \
                    --request-parameter b:t:string";
        let tensors = [
            tensor(input("text", "BYTES", &[1, 1]), texts(&["größer".as_bytes()])),
            tensor(input("n\"", "INT32", &[1, 2]), vec![1, 0, 0, 0, 255, 255, 255, 255]),
        ];
        let model = model(vec![input("text", "BYTES", &[-1, 1]), input("n\"", "INT32", &[-1, -1])], false);
        let template = GenerateTemplate::new(&options(line), &model, &tensors).unwrap();
        let (head, body) = head_and_body(&template.request(None));
        let first = "POST /v2/models/my%2F%3Cm%3E/versions/2/generate_stream HTTP/1.1\r\nHost: host:1\r\nToken: x\r\n";
        assert!(head.starts_with(first), "{head}");
        assert!(head.contains("\r\nAccept: text/event-stream\r\n"), "{head}");
        assert_eq!(body, json!({"text": "größer", "n\"": [1, -1], "a": 1, "b": "t"}));
    }

    #[test]
    fn a_sequence_has_its_place_beside_the_inputs() {
        let at = PlannedPosition { id: u64::MAX, start: true, end: false };
        let tensors = [tensor(input("IN", "UINT8", &[1, 1]), vec![4])];
        let model = model(vec![input("IN", "UINT8", &[-1, 1])], true);
        let request = |line: &str, tensors: &[InputTensor], at| {
            let template = GenerateTemplate::new(&options(line), &model, tensors).unwrap();
            head_and_body(&template.request(at)).1
        };
        let place = json!({"sequence_id": u64::MAX, "sequence_start": true, "sequence_end": false});
        assert_eq!(request("-m m --streaming", &[], Some(&at)), place);
        assert_eq!(request("-m m --streaming", &tensors, None), json!({"IN": 4}));
        let both = request("-m m --streaming", &tensors, Some(&at));
        assert_eq!((&both["IN"], &both["sequence_id"]), (&json!(4), &json!(u64::MAX)));
        let only = json!({"IN": 4, "sequence_id": 1, "sequence_start": true, "sequence_end": true});
        assert_eq!(request("-m m --streaming --sequences", &tensors, None), only);
    }

    #[test]
    fn arrays_are_nested_only_where_a_flat_one_would_have_another_shape() {
        for (dimensions, shape, expected) in [
            (&[-1, 1][..], &[1, 1][..], json!(0)),
            (&[], &[], json!(0)),
            (&[-1, 3], &[2, 3], json!([0, 1, 2, 3, 4, 5])),
            (&[-1, -1], &[1, 3], json!([0, 1, 2])),
            (&[-1, -1], &[2, 2], json!([[0, 1], [2, 3]])),
            (&[-1, -1], &[2, 1], json!([[0], [1]])),
            (&[-1, 1, -1], &[2, 1, 2], json!([[[0, 1]], [[2, 3]]])),
            (&[3], &[3], json!([0, 1, 2])),
            (&[-1, 3], &[0, 3], json!([])),
            (&[-1, 0], &[1, 0], json!([])),
        ] {
            assert_eq!(sent(dimensions, shape), Ok(expected), "{dimensions:?} {shape:?}");
        }
        let error = "no array without elements tells the shape [2, 0]";
        assert_eq!(sent(&[-1, -1], &[2, 0]), Err(error.into()));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let refused = |line: &str, name: &str, datatype: &str, bytes: Vec<u8>| {
            let model = model(vec![input(name, datatype, &[-1, 1])], line.contains("of-sequence"));
            let options = options(&format!("-m m --streaming {}", line.replace("of-sequence", "")));
            let tensors = [tensor(input(name, datatype, &[1, 1]), bytes)];
            let error = GenerateTemplate::new(&options, &model, &tensors).err().unwrap();
            format!("{error:#}")
        };
        let text = "input 'IN' cannot be in a generate request: use --protocol grpc: element 0 is not UTF-8";
        assert_eq!(refused("", "IN", "BYTES", texts(&[&[0xff]])).split(": invalid").next(), Some(text));
        assert!(refused("", "IN", "FP16", vec![0, 0]).contains("FP16 and BF16 have no JSON form"));
        let text = "no input and no parameter of a generate request can have the name 'parameters'";
        assert_eq!(refused("", "parameters", "UINT8", vec![1]), text);
        assert_eq!(refused("--request-parameter parameters:1:int", "IN", "UINT8", vec![1]), text);
        for (line, name) in [
            ("--request-parameter IN:1:int", "IN"),
            ("--request-parameter a:1:int --request-parameter a:2:int", "a"),
            ("--sequences --request-parameter sequence_id:2:int", "sequence_id"),
            ("of-sequence --request-parameter sequence_end:true:bool", "sequence_end"),
        ] {
            let text = format!("a generate request cannot have two inputs or parameters '{name}'");
            assert_eq!(refused(line, "IN", "UINT8", vec![1]), text);
        }
    }
}
