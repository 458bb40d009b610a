//! Replaces the values of tensors before they are written: numbers by 0, texts by as many x.
//!
//! Names, shapes, parameters, ids and sizes stay, so that a replay is alike for the server. What cannot be understood is
//! left out of the recording.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
};
use serde_json::Value;

use crate::event::CallProtocol;
use crate::message_content::{
    grpc_encoding, grpc_messages, has_events, http_content, http_encoding, json_length,
};

/// What a body holds, as far as tensors are concerned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BodyContent {
    /// No tensors.
    Plain,
    /// The JSON of inference, and binary tensors behind it.
    Json { length: Option<usize>, encoding: Option<String> },
    /// Messages of gRPC.
    Grpc { message: GrpcMessage, encoding: Option<String> },
    /// Tensors in a form that is not read here.
    Unread,
}

/// Which message of gRPC has the tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GrpcMessage {
    Request,
    Response,
    StreamResponse,
}

impl BodyContent {
    pub(crate) fn of_request(protocol: CallProtocol, path: &str, headers: &HeaderMap) -> BodyContent {
        match protocol {
            CallProtocol::Http => BodyContent::of_http(path, headers),
            CallProtocol::Grpc if is_inference(path) => BodyContent::Grpc {
                message: GrpcMessage::Request,
                encoding: grpc_encoding(headers).map(str::to_owned),
            },
            CallProtocol::Grpc => BodyContent::Plain,
        }
    }

    pub(crate) fn of_answer(protocol: CallProtocol, path: &str, headers: &HeaderMap) -> BodyContent {
        let encoding = grpc_encoding(headers).map(str::to_owned);
        match protocol {
            CallProtocol::Http => BodyContent::of_http(path, headers),
            CallProtocol::Grpc if path.ends_with("/ModelStreamInfer") => {
                BodyContent::Grpc { message: GrpcMessage::StreamResponse, encoding }
            }
            CallProtocol::Grpc if is_inference(path) => {
                BodyContent::Grpc { message: GrpcMessage::Response, encoding }
            }
            CallProtocol::Grpc => BodyContent::Plain,
        }
    }

    fn of_http(path: &str, headers: &HeaderMap) -> BodyContent {
        let path = path.split('?').next().unwrap_or_default();
        match path.rsplit('/').next() {
            Some("infer" | "generate" | "generate_stream") if has_events(headers) => BodyContent::Unread,
            Some("infer" | "generate" | "generate_stream") => BodyContent::Json {
                length: json_length(headers),
                encoding: http_encoding(headers).map(str::to_owned),
            },
            _ => BodyContent::Plain,
        }
    }
}

fn is_inference(path: &str) -> bool {
    path.ends_with("/ModelInfer") || path.ends_with("/ModelStreamInfer")
}

/// A body without the values of its tensors.
#[derive(Debug, PartialEq)]
pub(crate) struct HiddenBody {
    pub(crate) bytes: Vec<u8>,
    /// The length of the JSON, if binary tensors follow it. The header of the call must say it.
    pub(crate) json_length: Option<usize>,
}

/// Hides the values. A compressed body is not compressed any more. `None` if the body is not understood.
pub(crate) fn hidden(body: Vec<u8>, content: &BodyContent) -> Option<HiddenBody> {
    match content {
        BodyContent::Plain => Some(HiddenBody { bytes: body, json_length: None }),
        BodyContent::Unread => None,
        BodyContent::Json { length, encoding } => {
            hidden_json(&http_content(&body.into(), encoding.as_deref())?, *length)
        }
        BodyContent::Grpc { message, encoding } => {
            let mut bytes = Vec::new();
            for content in grpc_messages(&body.into(), encoding.as_deref())? {
                let content = hidden_message(content, *message)?;
                bytes.push(0);
                bytes.extend_from_slice(&u32::try_from(content.len()).ok()?.to_be_bytes());
                bytes.extend_from_slice(&content);
            }
            Some(HiddenBody { bytes, json_length: None })
        }
    }
}

/// The lists of tensors in the JSON of inference.
const TENSOR_LISTS: [&str; 2] = ["inputs", "outputs"];
/// The members of the generate extension that are no tensors.
const NO_TENSORS: [&str; 5] = ["id", "parameters", "error", "model_name", "model_version"];

fn hidden_json(body: &[u8], length: Option<usize>) -> Option<HiddenBody> {
    let (json, tail) = body.split_at_checked(length.unwrap_or(body.len()))?;
    let mut json: Value = serde_json::from_slice(json).ok()?;
    let mut tail = tail.to_vec();
    let members = json.as_object_mut()?;
    if TENSOR_LISTS.iter().any(|list| members.contains_key(*list)) {
        let mut rest = &mut tail[..];
        for tensor in TENSOR_LISTS.iter().filter_map(|list| members.get(*list)?.as_array()).flatten() {
            let Some(size) = tensor["parameters"]["binary_data_size"].as_u64() else { continue };
            let size = usize::try_from(size).ok()?;
            let (values, others) = std::mem::take(&mut rest).split_at_mut_checked(size)?;
            hide_values(values, tensor["datatype"] == "BYTES")?;
            rest = others;
        }
        // Bytes of no tensor could be anything.
        rest.is_empty().then_some(())?;
        for list in TENSOR_LISTS {
            let tensors = members.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            tensors.filter_map(|tensor| tensor.get_mut("data")).for_each(hide_json);
        }
    } else {
        let tensors = members.iter_mut().filter(|(name, _)| !NO_TENSORS.contains(&name.as_str()));
        tensors.for_each(|(_, value)| hide_json(value));
    }
    let mut bytes = serde_json::to_vec(&json).ok()?;
    let json_length = length.map(|_| bytes.len());
    bytes.extend_from_slice(&tail);
    Some(HiddenBody { bytes, json_length })
}

fn hide_json(value: &mut Value) {
    match value {
        Value::Number(number) => *number = 0.into(),
        Value::String(text) => *text = "x".repeat(text.chars().count()),
        Value::Bool(value) => *value = false,
        Value::Array(values) => values.iter_mut().for_each(hide_json),
        Value::Object(members) => members.values_mut().for_each(hide_json),
        Value::Null => {}
    }
}

/// Replaces the values of a binary tensor. Elements of texts keep their lengths. `None` if these are wrong.
fn hide_values(mut bytes: &mut [u8], is_texts: bool) -> Option<()> {
    if !is_texts {
        bytes.fill(0);
        return Some(());
    }
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (element, rest) = std::mem::take(&mut bytes).split_at_mut_checked(4 + length)?;
        element[4..].fill(b'x');
        bytes = rest;
    }
    Some(())
}

fn hidden_message(message: Bytes, kind: GrpcMessage) -> Option<Vec<u8>> {
    match kind {
        GrpcMessage::Request => {
            let mut request = ModelInferRequest::decode(message).ok()?;
            let inputs = request.inputs.iter();
            let inputs = inputs.map(|input| (input.datatype.as_str(), &input.parameters));
            let texts = texts_in_raw(inputs);
            request.raw_input_contents = hidden_contents(request.raw_input_contents, &texts)?;
            request.inputs.iter_mut().filter_map(|input| input.contents.as_mut()).for_each(hide_typed);
            Some(request.encode_to_vec())
        }
        GrpcMessage::Response => {
            let mut response = ModelInferResponse::decode(message).ok()?;
            hide_response(&mut response)?;
            Some(response.encode_to_vec())
        }
        GrpcMessage::StreamResponse => {
            let mut response = ModelStreamInferResponse::decode(message).ok()?;
            if let Some(response) = &mut response.infer_response {
                hide_response(response)?;
            }
            Some(response.encode_to_vec())
        }
    }
}

fn hide_response(response: &mut ModelInferResponse) -> Option<()> {
    let outputs = response.outputs.iter();
    let texts = texts_in_raw(outputs.map(|output| (output.datatype.as_str(), &output.parameters)));
    let contents = std::mem::take(&mut response.raw_output_contents);
    response.raw_output_contents = hidden_contents(contents, &texts)?;
    response.outputs.iter_mut().filter_map(|output| output.contents.as_mut()).for_each(hide_typed);
    Some(())
}

/// For each tensor with raw contents, whether its elements are texts. Tensors in shared memory have none.
fn texts_in_raw<'t>(
    tensors: impl Iterator<Item = (&'t str, &'t BTreeMap<String, InferParameter>)>,
) -> Vec<bool> {
    let in_message = tensors.filter(|(_, parameters)| !parameters.contains_key("shared_memory_region"));
    in_message.map(|(datatype, _)| datatype == "BYTES").collect()
}

fn hidden_contents(contents: Vec<Bytes>, texts: &[bool]) -> Option<Vec<Bytes>> {
    let hide = |(content, is_texts): (Bytes, &bool)| {
        let mut content = Vec::from(content);
        hide_values(&mut content, *is_texts)?;
        Some(content.into())
    };
    // Contents of no tensor could be anything.
    (contents.len() <= texts.len()).then(|| contents.into_iter().zip(texts).map(hide).collect())?
}

fn hide_typed(contents: &mut InferTensorContents) {
    contents.bool_contents.fill(false);
    contents.int_contents.fill(0);
    contents.int64_contents.fill(0);
    contents.uint_contents.fill(0);
    contents.uint64_contents.fill(0);
    contents.fp32_contents.fill(0.0);
    contents.fp64_contents.fill(0.0);
    for element in &mut contents.bytes_contents {
        *element = vec![b'x'; element.len()].into();
    }
}

#[cfg(test)]
mod tests {
    use client::framing;
    use proto::model_infer_request::InferInputTensor;

    use super::*;

    fn json(body: &str, tail: &[u8], length: Option<usize>) -> Option<HiddenBody> {
        hidden([body.as_bytes(), tail].concat(), &BodyContent::Json { length, encoding: None })
    }

    #[test]
    fn values_in_json_are_hidden_and_the_rest_stays() {
        let body = r#"{"id":"i","inputs":[{"name":"A","datatype":"FP32","shape":[2],"data":[1.5,[2]]},{"name":"B","datatype":"BYTES","shape":[1],"data":["añb"]}],"parameters":{"sequence_id":7}}"#;
        let hidden = json(body, b"", None).unwrap();
        assert_eq!(
            std::str::from_utf8(&hidden.bytes).unwrap(),
            r#"{"id":"i","inputs":[{"data":[0,[0]],"datatype":"FP32","name":"A","shape":[2]},{"data":["xxx"],"datatype":"BYTES","name":"B","shape":[1]}],"parameters":{"sequence_id":7}}"#
        );
        assert_eq!(hidden.json_length, None);
    }

    #[test]
    fn binary_tensors_are_hidden_and_texts_keep_their_lengths() {
        let body = r#"{"inputs":[{"name":"A","datatype":"BYTES","parameters":{"binary_data_size":7}},{"name":"B","datatype":"INT8","parameters":{"binary_data_size":2}}]}"#;
        let hidden = json(body, b"\x03\0\0\0abc\x05\x06", Some(body.len())).unwrap();
        assert!(hidden.bytes.ends_with(b"\x03\0\0\0xxx\0\0"), "{hidden:?}");
        assert_eq!(hidden.json_length, Some(hidden.bytes.len() - 9));
        for wrong in [&b"\x04\0\0\0abc\x05\x06"[..], b"\x03\0\0\0abc\x05", b"\x03\0\0\0abc\x05\x06\x07"] {
            assert_eq!(json(body, wrong, Some(body.len())), None);
        }
    }

    #[test]
    fn members_of_generate_are_hidden_without_parameters() {
        let hidden = json(r#"{"text_input":"hi","parameters":{"max_tokens":3},"stream":true}"#, b"", None);
        let text = String::from_utf8(hidden.unwrap().bytes).unwrap();
        assert_eq!(text, r#"{"parameters":{"max_tokens":3},"stream":false,"text_input":"xx"}"#);
    }

    #[test]
    fn contents_of_grpc_are_hidden() {
        let input = |name: &str, datatype: &str| InferInputTensor {
            name: name.into(),
            datatype: datatype.into(),
            ..Default::default()
        };
        let mut typed = input("C", "INT32");
        typed.contents = Some(InferTensorContents { int_contents: vec![4, 5], ..Default::default() });
        let request = ModelInferRequest {
            id: "i".into(),
            inputs: vec![input("A", "BYTES"), input("B", "UINT8"), typed],
            raw_input_contents: vec![Bytes::from_static(b"\x01\0\0\0a"), Bytes::from_static(b"\x09")],
            ..Default::default()
        };
        let content = BodyContent::Grpc { message: GrpcMessage::Request, encoding: None };
        let framed = framing::grpc_message(&request);
        let hidden = hidden(framed.to_vec(), &content).unwrap();
        let read = ModelInferRequest::decode(&hidden.bytes[framing::FRAME_HEAD..]).unwrap();
        assert_eq!((read.id.as_str(), read.inputs.len()), ("i", 3));
        assert_eq!(read.raw_input_contents, [&b"\x01\0\0\0x"[..], b"\0"]);
        assert_eq!(read.inputs[2].contents.as_ref().unwrap().int_contents, [0, 0]);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        assert_eq!(json("no json", b"", None), None);
        assert_eq!(hidden(b"data: {}".to_vec(), &BodyContent::Unread), None);
        let content = BodyContent::Grpc { message: GrpcMessage::Request, encoding: None };
        assert_eq!(hidden(vec![0, 0, 0, 0, 9, 1], &content), None);
    }
}
