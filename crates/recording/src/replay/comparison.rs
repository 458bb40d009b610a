//! Compares the answer of a call with the recorded one.
//!
//! Only what the client asked for is compared: status, ids, and the outputs of inference with name, datatype, shape and
//! values. Versions of models may differ. Answers to questions are compared by status only, because they tell about the
//! server.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use prost::Message;
use proto::{ModelInferResponse, ModelStreamInferResponse};
use serde_json::Value;

use super::call_target::CallKind;
use super::recorded_call::CallAnswer;
use super::tensor_values::{TensorValues, difference_of_json, difference_of_values};
use crate::message_content::{
    grpc_encoding, grpc_messages, has_events, http_content, http_encoding, json_length,
};

/// What a comparison has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerVerdict {
    Same,
    /// How they differ.
    Different(String),
    /// The recording does not have the answer.
    NotRecorded,
}

/// Compares two answers to a call of this kind. Numbers may differ by `tolerance`, and by this part of their size.
pub(crate) fn compare(
    kind: CallKind,
    recorded: &CallAnswer,
    replayed: &CallAnswer,
    tolerance: f64,
) -> AnswerVerdict {
    let (before, now) = (status(recorded), status(replayed));
    if before != now {
        let text = error_text(replayed).map(|text| format!(" ({text})")).unwrap_or_default();
        return AnswerVerdict::Different(format!("status {now}{text}, recorded {before}"));
    }
    let is_success = before == "200" || before == "grpc 0";
    if !is_success || matches!(kind, CallKind::Question | CallKind::Change) {
        return AnswerVerdict::Same;
    }
    let (Some(before), Some(now)) = (&recorded.body, &replayed.body) else {
        return AnswerVerdict::NotRecorded;
    };
    if before == now && encoding(recorded) == encoding(replayed) {
        return AnswerVerdict::Same;
    }
    let found = match kind {
        CallKind::Generate => generated_difference(recorded, replayed, tolerance),
        _ => responses(kind, recorded)
            .context("recorded")
            .and_then(|before| Ok(difference(before, responses(kind, replayed).context("now")?, tolerance))),
    };
    match found {
        Ok(None) => AnswerVerdict::Same,
        Ok(Some(difference)) => AnswerVerdict::Different(difference),
        Err(error) => {
            AnswerVerdict::Different(format!("the bytes differ, and one cannot be read: {error:#}"))
        }
    }
}

/// The status of the call, by its protocol.
pub(crate) fn status(answer: &CallAnswer) -> String {
    match answer.trailers.get("grpc-status").or_else(|| answer.headers.get("grpc-status")) {
        Some(status) => format!("grpc {}", status.to_str().unwrap_or("?")),
        None => answer.status.to_string(),
    }
}

/// The text of an error, if the answer is one.
fn error_text(answer: &CallAnswer) -> Option<String> {
    if let Some(text) = answer.trailers.get("grpc-message").or_else(|| answer.headers.get("grpc-message")) {
        return Some(percent_encoding::percent_decode(text.as_bytes()).decode_utf8_lossy().into());
    }
    let json: Value = serde_json::from_slice(answer.body.as_ref()?).ok()?;
    Some(json["error"].as_str()?.to_owned())
}

fn encoding(answer: &CallAnswer) -> Option<&str> {
    http_encoding(&answer.headers).or_else(|| grpc_encoding(&answer.headers))
}

/// A response of a model.
struct ComparedResponse {
    id: String,
    outputs: Vec<ComparedOutput>,
}

struct ComparedOutput {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    values: TensorValues,
}

/// The content of an answer over HTTP, without compression.
fn content(answer: &CallAnswer) -> Result<Bytes> {
    let body = answer.body.as_ref().context("it has no body")?;
    http_content(body, http_encoding(&answer.headers)).context("it cannot be decompressed")
}

fn responses(kind: CallKind, answer: &CallAnswer) -> Result<Vec<ComparedResponse>> {
    if kind == CallKind::Infer {
        return Ok(vec![http_response(answer)?]);
    }
    let body = answer.body.as_ref().context("it has no body")?;
    let messages =
        grpc_messages(body, grpc_encoding(&answer.headers)).context("its frames are wrong")?.into_iter();
    match kind {
        CallKind::GrpcStream => messages
            .map(|message| {
                let response = ModelStreamInferResponse::decode(message)?;
                match response.infer_response {
                    Some(infer) if response.error_message.is_empty() => grpc_response(infer),
                    infer => Ok(ComparedResponse {
                        id: infer.map(|infer| infer.id).unwrap_or_default(),
                        outputs: vec![of_error(response.error_message)],
                    }),
                }
            })
            .collect(),
        _ => messages.map(|message| grpc_response(ModelInferResponse::decode(message)?)).collect(),
    }
}

/// An error within a stream, as if it were an output.
fn of_error(text: String) -> ComparedOutput {
    let (name, datatype) = ("error".to_owned(), "error".to_owned());
    ComparedOutput { name, datatype, shape: Vec::new(), values: TensorValues::Json(Value::String(text)) }
}

fn http_response(answer: &CallAnswer) -> Result<ComparedResponse> {
    let content = content(answer)?;
    let mut at = json_length(&answer.headers).unwrap_or(content.len());
    let json: Value = serde_json::from_slice(content.get(..at).context("it is too short")?)?;
    let mut outputs = Vec::new();
    for output in json["outputs"].as_array().into_iter().flatten() {
        let values = match output["parameters"]["binary_data_size"].as_u64() {
            Some(size) => {
                let end = at.checked_add(usize::try_from(size)?).filter(|&end| end <= content.len());
                let values = content.slice(at..end.context("it is too short")?);
                at += values.len();
                TensorValues::Bytes(values)
            }
            None => TensorValues::Json(output["data"].clone()),
        };
        let text = |member: &str| output[member].as_str().unwrap_or_default().to_owned();
        let shape = output["shape"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        outputs.push(ComparedOutput { name: text("name"), datatype: text("datatype"), shape, values });
    }
    Ok(ComparedResponse { id: json["id"].as_str().unwrap_or_default().to_owned(), outputs })
}

fn grpc_response(response: ModelInferResponse) -> Result<ComparedResponse> {
    let mut raw = response.raw_output_contents.into_iter();
    let output = |output: proto::model_infer_response::InferOutputTensor| {
        let is_elsewhere = output.parameters.contains_key("shared_memory_region");
        let values = match output.contents {
            Some(contents) => TensorValues::Bytes(contents.encode_to_vec().into()),
            None if is_elsewhere => TensorValues::Bytes(Bytes::new()),
            None => TensorValues::Bytes(raw.next().unwrap_or_default()),
        };
        ComparedOutput { name: output.name, datatype: output.datatype, shape: output.shape, values }
    };
    Ok(ComparedResponse { id: response.id, outputs: response.outputs.into_iter().map(output).collect() })
}

/// The responses of each request in their order. Those of different requests come as they are ready.
fn by_id(responses: Vec<ComparedResponse>) -> BTreeMap<String, Vec<ComparedResponse>> {
    let mut all: BTreeMap<String, Vec<ComparedResponse>> = BTreeMap::new();
    for response in responses {
        all.entry(response.id.clone()).or_default().push(response);
    }
    all
}

fn difference(
    recorded: Vec<ComparedResponse>,
    replayed: Vec<ComparedResponse>,
    tolerance: f64,
) -> Option<String> {
    let (recorded, mut replayed) = (by_id(recorded), by_id(replayed));
    for (id, before) in recorded {
        let of = if id.is_empty() { String::new() } else { format!("request '{id}': ") };
        let now = replayed.remove(&id).unwrap_or_default();
        if before.len() != now.len() {
            return Some(format!("{of}{} responses, recorded {}", now.len(), before.len()));
        }
        for (before, now) in before.iter().zip(&now) {
            if let Some(difference) = difference_of_outputs(before, now, tolerance) {
                return Some(format!("{of}{difference}"));
            }
        }
    }
    let id = replayed.into_keys().next()?;
    Some(format!("a response of request '{id}', which the recording does not have"))
}

fn difference_of_outputs(
    recorded: &ComparedResponse,
    replayed: &ComparedResponse,
    tolerance: f64,
) -> Option<String> {
    let names = |response: &ComparedResponse| -> Vec<String> {
        response.outputs.iter().map(|output| output.name.clone()).collect()
    };
    if names(recorded) != names(replayed) {
        let (now, before) = (names(replayed).join(", "), names(recorded).join(", "));
        return Some(format!("outputs '{now}', recorded '{before}'"));
    }
    recorded.outputs.iter().zip(&replayed.outputs).find_map(|(before, now)| {
        let name = &before.name;
        if (&before.datatype, &before.shape) != (&now.datatype, &now.shape) {
            return Some(format!(
                "output '{name}' is {} {:?}, recorded {} {:?}",
                now.datatype, now.shape, before.datatype, before.shape
            ));
        }
        let difference = difference_of_values(&before.datatype, &before.values, &now.values, tolerance)?;
        Some(format!("output '{name}': {difference}"))
    })
}

/// The members that tell about the server.
const OF_SERVER: [&str; 1] = ["model_version"];

/// Compares answers of the generate extension: JSON, or events with JSON.
fn generated_difference(
    recorded: &CallAnswer,
    replayed: &CallAnswer,
    tolerance: f64,
) -> Result<Option<String>> {
    let (before, now) = (generated(recorded).context("recorded")?, generated(replayed).context("now")?);
    if before.len() != now.len() {
        return Ok(Some(format!("{} responses, recorded {}", now.len(), before.len())));
    }
    Ok(before.iter().zip(&now).find_map(|(before, now)| difference_of_json(before, now, tolerance)))
}

fn generated(answer: &CallAnswer) -> Result<Vec<Value>> {
    let content = content(answer)?;
    let texts: Vec<&[u8]> = match has_events(&answer.headers) {
        true => content.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data:")).collect(),
        false => vec![&content],
    };
    let read = |text: &[u8]| {
        let mut value: Value = serde_json::from_slice(text)?;
        if let Some(members) = value.as_object_mut() {
            members.retain(|name, _| !OF_SERVER.contains(&name.as_str()));
        }
        Ok(value)
    };
    texts.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use client::framing;
    use http::HeaderValue;
    use proto::model_infer_response::InferOutputTensor;

    use super::*;

    fn answer(status: u16, body: impl Into<Bytes>) -> CallAnswer {
        CallAnswer { status, body: Some(body.into()), ..CallAnswer::default() }
    }

    fn different(kind: CallKind, recorded: &CallAnswer, replayed: &CallAnswer) -> String {
        match compare(kind, recorded, replayed, 0.001) {
            AnswerVerdict::Different(difference) => difference,
            verdict => panic!("{verdict:?}"),
        }
    }

    fn json(version: &str, data: &str) -> CallAnswer {
        let outputs = format!(r#"[{{"name":"O","datatype":"FP32","shape":[2],"data":{data}}}]"#);
        answer(200, format!(r#"{{"id":"i","model_version":"{version}","outputs":{outputs}}}"#))
    }

    #[test]
    fn versions_and_small_differences_of_numbers_do_not_matter() {
        let same = compare(CallKind::Infer, &json("1", "[1.5,2]"), &json("2", "[1.5001,2]"), 0.001);
        assert_eq!(same, AnswerVerdict::Same);
        let found = different(CallKind::Infer, &json("1", "[1.5,2]"), &json("1", "[1.5,2.1]"));
        assert_eq!(found, "request 'i': output 'O': element 1 is 2.1, recorded 2");
    }

    #[test]
    fn a_status_is_told_with_the_text_of_the_error() {
        let found =
            different(CallKind::Infer, &json("1", "[]"), &answer(400, r#"{"error":"no such input"}"#));
        assert_eq!(found, "status 400 (no such input), recorded 200");
        let unavailable = |answer: &CallAnswer| {
            let mut answer = answer.clone();
            answer.trailers.insert("grpc-status", HeaderValue::from_static("14"));
            answer
        };
        let ok = answer(200, "");
        assert_eq!(different(CallKind::GrpcInfer, &ok, &unavailable(&ok)), "status grpc 14, recorded 200");
        // Errors may have other words.
        assert_eq!(compare(CallKind::Infer, &answer(400, "a"), &answer(400, "b"), 0.0), AnswerVerdict::Same);
    }

    #[test]
    fn questions_are_compared_by_status() {
        assert_eq!(
            compare(CallKind::Question, &answer(200, "a"), &answer(200, "b"), 0.0),
            AnswerVerdict::Same
        );
        let absent = CallAnswer { status: 200, ..CallAnswer::default() };
        assert_eq!(compare(CallKind::Infer, &absent, &answer(200, "b"), 0.0), AnswerVerdict::NotRecorded);
    }

    fn streamed(responses: &[(&str, u8)]) -> CallAnswer {
        let mut body = Vec::new();
        for (id, value) in responses {
            let output = InferOutputTensor {
                name: "O".into(),
                datatype: "UINT8".into(),
                shape: vec![1],
                ..Default::default()
            };
            let infer_response = Some(ModelInferResponse {
                id: (*id).into(),
                outputs: vec![output],
                raw_output_contents: vec![Bytes::copy_from_slice(&[*value])],
                ..Default::default()
            });
            let response = ModelStreamInferResponse { infer_response, ..Default::default() };
            body.extend_from_slice(&framing::grpc_message(&response));
        }
        let mut answer = answer(200, body);
        answer.trailers.insert("grpc-status", HeaderValue::from_static("0"));
        answer
    }

    #[test]
    fn responses_of_a_stream_are_compared_by_request() {
        let recorded = streamed(&[("a", 1), ("b", 2), ("a", 3)]);
        let same = compare(CallKind::GrpcStream, &recorded, &streamed(&[("b", 2), ("a", 1), ("a", 3)]), 0.0);
        assert_eq!(same, AnswerVerdict::Same);
        let found = different(CallKind::GrpcStream, &recorded, &streamed(&[("a", 3), ("b", 2), ("a", 1)]));
        assert_eq!(found, "request 'a': output 'O': element 0 is 3, recorded 1");
        let found = different(CallKind::GrpcStream, &recorded, &streamed(&[("a", 1), ("b", 2)]));
        assert_eq!(found, "request 'a': 1 responses, recorded 2");
    }

    #[test]
    fn events_are_compared_one_by_one() {
        let events = |texts: &[&str]| {
            let body: String = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
            let mut answer = answer(200, body);
            answer.headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
            answer
        };
        let recorded = events(&[r#"{"t":"a","model_version":"1"}"#, r#"{"t":"b"}"#]);
        let same = events(&[r#"{"t":"a","model_version":"2"}"#, r#"{"t":"b"}"#]);
        assert_eq!(compare(CallKind::Generate, &recorded, &same, 0.0), AnswerVerdict::Same);
        let found = different(CallKind::Generate, &recorded, &events(&[r#"{"t":"a"}"#, r#"{"t":"c"}"#]));
        assert_eq!(found, r#"t is "c", recorded "b""#);
    }
}
