//! The recorded exchanges: the answers of a real server of release 2.51 to requests of every kind.
//!
//! `golden/protocol.jsonl` has one JSON object on each line. The first one contains the served models. Each other one
//! contains an exchange: a name, the request, the response, and the arguments of the server. Bodies are text, or base64
//! where they are not text.
use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

const LINES: &str = include_str!("../golden/protocol.jsonl");

/// One recorded exchange.
#[derive(Debug)]
pub struct Record {
    /// Unique name.
    pub name: String,
    /// The server's arguments as recorded, with remarks in brackets; `None` where the recording lacks them.
    pub arguments: Option<String>,
    /// The request and the response.
    pub exchange: Exchange,
}

/// The request and the response of an exchange.
#[derive(Debug)]
pub enum Exchange {
    /// An HTTP request with its response.
    Http {
        /// As sent.
        request: HttpRequest,
        /// As received.
        response: HttpResponse,
    },
    /// Bytes on a socket.
    Raw {
        /// All sent bytes, or a description of them.
        request: String,
        /// All received bytes, where the recording has them.
        response: Option<String>,
        /// Whether the server closed the connection.
        closed: bool,
    },
    /// A unary gRPC call.
    Unary {
        /// `/package.Service/Method`.
        path: String,
        /// The request.
        message: Message,
        /// Its metadata.
        metadata: Vec<(String, String)>,
        /// The name of the status code, such as `OK`.
        code: String,
        /// The status message.
        details: String,
        /// The response, if there was one.
        answer: Option<Message>,
    },
    /// A call of `ModelStreamInfer`.
    Stream {
        /// The requests in order. A number with the name `sleep` is a pause in seconds.
        requests: Vec<Value>,
        /// The metadata of the call.
        metadata: Vec<(String, String)>,
        /// The responses in order.
        responses: Vec<Value>,
        /// The name of the status code at the end.
        code: String,
    },
    /// Any other exchange, as a description: command lines, signals, crashes, files.
    Told {
        /// The request's fields.
        request: Value,
        /// The response's fields.
        response: Value,
    },
}

/// A protobuf message as recorded.
#[derive(Debug)]
pub enum Message {
    /// In protobuf's JSON form with the names of the schema.
    Json(Value),
    /// Encoded.
    Bytes(Vec<u8>),
}

/// An HTTP request.
#[derive(Debug)]
pub struct HttpRequest {
    /// Method.
    pub method: String,
    /// Path as on the wire.
    pub path: String,
    /// Headers in order, as on the wire.
    pub headers: Vec<(String, String)>,
    /// Everything after the headers, chunk framing included.
    pub body: Vec<u8>,
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Headers in order, as on the wire.
    pub headers: Vec<(String, String)>,
    /// The body without chunk framing.
    pub body: Vec<u8>,
    /// Whether the connection could be used again.
    pub kept_open: bool,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    request: Value,
    response: Value,
    server_args: Option<String>,
}

fn lines() -> impl Iterator<Item = Line> {
    LINES
        .lines()
        .map(|line| serde_json::from_str(line).expect("the recordings are well formed, as a test shows"))
}

/// The files of each served model, by the names of model and file.
pub fn models() -> BTreeMap<String, BTreeMap<String, String>> {
    let first = lines().next().expect("the recordings begin with the models");
    serde_json::from_value(first.response).expect("models are maps from file name to text")
}

/// All exchanges in the order of the recording.
pub fn records() -> Vec<Record> {
    lines().skip(1).map(Record::from).collect()
}

impl From<Line> for Record {
    fn from(line: Line) -> Self {
        let exchange = exchange(&line.request, &line.response)
            .unwrap_or(Exchange::Told { request: line.request, response: line.response });
        Self { name: line.name, arguments: line.server_args, exchange }
    }
}

fn exchange(request: &Value, response: &Value) -> Option<Exchange> {
    if let Some(method) = request["method"].as_str() {
        let response = HttpResponse {
            status: response["status_line"].as_str()?.split(' ').nth(1)?.parse().ok()?,
            headers: pairs(&response["headers"]),
            body: body(&response["body"])?,
            kept_open: response["connection_kept_open"].as_bool()?,
        };
        let mut request = HttpRequest {
            method: method.into(),
            path: request["path"].as_str()?.into(),
            headers: pairs(&request["headers"]),
            body: body(&request["body"])?,
        };
        // Paths in bodies were shortened after the recording.
        for (_, length) in request.headers.iter_mut().filter(|(name, _)| name == "Content-Length") {
            *length = request.body.len().to_string();
        }
        return Some(Exchange::Http { request, response });
    }
    if let Some(raw) = request["raw"].as_str() {
        return Some(Exchange::Raw {
            request: raw.into(),
            response: response["raw"].as_str().map(Into::into),
            closed: response["closed_by_server"] != false,
        });
    }
    let call = request["rpc"].as_str()?;
    let metadata = pairs(&request["metadata"]);
    if let Some(requests) = request["messages"].as_array() {
        return Some(Exchange::Stream {
            requests: requests.clone(),
            metadata,
            responses: response["messages"].as_array()?.clone(),
            code: response["final_status"].as_str()?.into(),
        });
    }
    Some(Exchange::Unary {
        path: path(call),
        message: message(request).unwrap_or(Message::Bytes(Vec::new())),
        metadata,
        code: response["code"].as_str()?.into(),
        details: response["details"].as_str().unwrap_or_default().into(),
        answer: message(response),
    })
}

/// The recording has calls with or without a leading slash, and sometimes without their service.
fn path(call: &str) -> String {
    let call = call.trim_start_matches('/');
    if call.contains('/') { format!("/{call}") } else { format!("/inference.GRPCInferenceService/{call}") }
}

fn message(side: &Value) -> Option<Message> {
    match (&side["message"], side["bytes_hex"].as_str()) {
        (Value::Null, None) => None,
        (Value::Null, Some(hex)) => {
            let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
            let bytes: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
            bytes.map(Message::Bytes)
        }
        (json, _) => Some(Message::Json(json.clone())),
    }
}

fn pairs(list: &Value) -> Vec<(String, String)> {
    serde_json::from_value(list.clone()).unwrap_or_default()
}

/// The body; `None` for a description of a body.
fn body(written: &Value) -> Option<Vec<u8>> {
    match written {
        Value::Null => Some(Vec::new()),
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        other => match (other["text"].as_str(), other["b64"].as_str()) {
            (Some(text), _) => Some(text.as_bytes().to_vec()),
            (None, Some(encoded)) => STANDARD.decode(encoded).ok(),
            (None, None) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(kind: impl Fn(&Exchange) -> bool) -> usize {
        records().iter().filter(|record| kind(&record.exchange)).count()
    }

    #[test]
    fn every_line_is_understood() {
        assert_eq!(models().len(), 26);
        assert_eq!(records().len(), 376);
        assert_eq!(count(|exchange| matches!(exchange, Exchange::Http { .. })), 256);
        assert_eq!(count(|exchange| matches!(exchange, Exchange::Raw { .. })), 9);
        assert_eq!(count(|exchange| matches!(exchange, Exchange::Unary { .. })), 71);
        assert_eq!(count(|exchange| matches!(exchange, Exchange::Stream { .. })), 11);
        let told: Vec<_> = records()
            .into_iter()
            .filter(|record| matches!(record.exchange, Exchange::Told { .. }))
            .map(|record| record.name)
            .filter(|name| !name.starts_with("cli_") && !name.starts_with("signal_"))
            .collect();
        assert_eq!(
            told,
            [
                "expect_100_continue",
                "crash_json_shape_overflow",
                "crash_stream_cancel_decoupled",
                "trace_file_sample_1",
                "trace_file_sample_2",
                "trace_file_sample_4",
                "otel_export_2",
                "metrics_full_text",
            ]
        );
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = records().into_iter().map(|record| record.name).collect();
        assert_eq!(names.len(), 376);
    }

    #[test]
    fn a_call_has_a_whole_path() {
        assert_eq!(path("ModelInfer"), "/inference.GRPCInferenceService/ModelInfer");
        assert_eq!(path("/grpc.health.v1.Health/Watch"), "/grpc.health.v1.Health/Watch");
    }
}
