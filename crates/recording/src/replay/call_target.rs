//! What a call asks of a server, as far as a replay must know.

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use proto::infer_parameter::ParameterChoice;
use proto::{InferParameter, ModelInferRequest};
use serde_json::Value;

use crate::event::CallProtocol;
use crate::message_content::{grpc_encoding, grpc_messages, http_content, http_encoding, json_length};

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallTarget {
    pub(crate) kind: CallKind,
    /// Empty if the call is not for a model, or a stream for several.
    pub(crate) model: String,
    /// What it is called in a report: the method of gRPC, or the last part of the path.
    pub(crate) operation: String,
    /// The correlation id of the sequence that it belongs to.
    pub(crate) sequence: Option<String>,
}

/// What kind of call it is. It decides how answers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Inference over HTTP.
    Infer,
    /// The generate extension, with or without events.
    Generate,
    /// Inference over gRPC: one request.
    GrpcInfer,
    /// Inference over gRPC: a stream.
    GrpcStream,
    /// It asks and changes nothing.
    Question,
    /// It changes the server.
    Change,
}

/// The methods of gRPC that change nothing, beside inference.
const QUESTIONS: [&str; 9] = [
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "Check",
];
/// Such methods, by their ends.
const QUESTION_ENDS: [&str; 2] = ["Status", "ServerReflectionInfo"];

impl CallTarget {
    /// `body` is `None` if it is a stream or not recorded.
    pub(crate) fn of(
        protocol: CallProtocol,
        path: &str,
        headers: &HeaderMap,
        body: Option<&Bytes>,
    ) -> CallTarget {
        match protocol {
            CallProtocol::Http => of_http(path, headers, body),
            CallProtocol::Grpc => of_grpc(path, headers, body),
        }
    }
}

fn of_http(path: &str, headers: &HeaderMap, body: Option<&Bytes>) -> CallTarget {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let operation = segments.last().copied().unwrap_or("/").to_owned();
    let kind = match (operation.as_str(), segments.as_slice()) {
        ("infer", ["v2", "models", ..]) => CallKind::Infer,
        ("generate" | "generate_stream", ["v2", "models", ..]) => CallKind::Generate,
        ("index", ["v2", "repository", ..]) => CallKind::Question,
        // What asks has no body. A GET of settings has none either.
        _ if body.is_some_and(Bytes::is_empty)
            && !["load", "unload", "register", "unregister"].contains(&operation.as_str()) =>
        {
            CallKind::Question
        }
        _ => CallKind::Change,
    };
    let model = match segments.as_slice() {
        ["v2", "models", model, _, ..] => {
            percent_encoding::percent_decode_str(model).decode_utf8_lossy().into()
        }
        _ => String::new(),
    };
    let sequence = match kind {
        CallKind::Infer | CallKind::Generate => body.and_then(|body| http_sequence(headers, body)),
        _ => None,
    };
    CallTarget { kind, model, operation, sequence }
}

/// The sequence of a request over HTTP. Compressed ones are decompressed.
fn http_sequence(headers: &HeaderMap, body: &Bytes) -> Option<String> {
    let content = http_content(body, http_encoding(headers))?;
    let length = json_length(headers).unwrap_or(content.len());
    let json: Value = serde_json::from_slice(content.get(..length)?).ok()?;
    match json["parameters"].get("sequence_id").or_else(|| json.get("sequence_id"))? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(id) if id.as_u64() != Some(0) => Some(id.to_string()),
        _ => None,
    }
}

fn of_grpc(path: &str, headers: &HeaderMap, body: Option<&Bytes>) -> CallTarget {
    let operation = path.rsplit('/').next().unwrap_or_default().to_owned();
    let kind = match operation.as_str() {
        "ModelInfer" => CallKind::GrpcInfer,
        "ModelStreamInfer" => CallKind::GrpcStream,
        name if QUESTIONS.contains(&name) || QUESTION_ENDS.iter().any(|end| name.ends_with(end)) => {
            CallKind::Question
        }
        _ => CallKind::Change,
    };
    let request = match kind {
        CallKind::GrpcInfer => body.and_then(|body| {
            let message = grpc_messages(body, grpc_encoding(headers))?.pop()?;
            ModelInferRequest::decode(message).ok()
        }),
        _ => None,
    };
    let sequence = request.as_ref().and_then(|request| grpc_sequence(request.parameters.get("sequence_id")?));
    let model = request.map(|request| request.model_name).unwrap_or_default();
    CallTarget { kind, model, operation, sequence }
}

fn grpc_sequence(parameter: &InferParameter) -> Option<String> {
    match parameter.parameter_choice.as_ref()? {
        ParameterChoice::Int64Param(id) if *id != 0 => Some(id.to_string()),
        ParameterChoice::Uint64Param(id) if *id != 0 => Some(id.to_string()),
        ParameterChoice::StringParam(id) if !id.is_empty() => Some(id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use client::framing;

    use super::*;

    fn http(path: &str, body: &'static str) -> CallTarget {
        CallTarget::of(
            CallProtocol::Http,
            path,
            &HeaderMap::new(),
            Some(&Bytes::from_static(body.as_bytes())),
        )
    }

    #[test]
    fn calls_that_change_the_server_are_known() {
        for (path, body, kind) in [
            ("/v2/models/m/infer", "{}", CallKind::Infer),
            ("/v2/models/m/versions/3/generate_stream", "{}", CallKind::Generate),
            ("/v2/models/m/config?x=1", "", CallKind::Question),
            ("/v2/repository/index", r#"{"ready":true}"#, CallKind::Question),
            ("/v2/repository/models/m/load", "", CallKind::Change),
            ("/v2/logging", r#"{"log_verbose_level":1}"#, CallKind::Change),
            ("/v2/logging", "", CallKind::Question),
            ("/v2/systemsharedmemory/region/a/register", "{}", CallKind::Change),
        ] {
            assert_eq!(http(path, body).kind, kind, "{path}");
        }
        for (method, kind) in [
            ("ModelInfer", CallKind::GrpcInfer),
            ("ModelStreamInfer", CallKind::GrpcStream),
            ("ModelMetadata", CallKind::Question),
            ("SystemSharedMemoryStatus", CallKind::Question),
            ("RepositoryModelUnload", CallKind::Change),
            ("LogSettings", CallKind::Change),
        ] {
            let path = format!("/inference.GRPCInferenceService/{method}");
            let target = CallTarget::of(CallProtocol::Grpc, &path, &HeaderMap::new(), None);
            assert_eq!((target.kind, target.operation.as_str()), (kind, method));
        }
    }

    #[test]
    fn sequences_are_found_in_both_protocols() {
        let target = http("/v2/models/a%20b/infer", r#"{"parameters":{"sequence_id":7}}"#);
        assert_eq!((target.model.as_str(), target.sequence.as_deref()), ("a b", Some("7")));
        assert_eq!(http("/v2/models/m/infer", r#"{"parameters":{"sequence_id":0}}"#).sequence, None);
        let parameter = InferParameter { parameter_choice: Some(ParameterChoice::StringParam("s".into())) };
        let request = ModelInferRequest {
            model_name: "m".into(),
            parameters: [("sequence_id".to_owned(), parameter)].into(),
            ..Default::default()
        };
        let body = framing::grpc_message(&request);
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let target = CallTarget::of(CallProtocol::Grpc, path, &HeaderMap::new(), Some(&body));
        assert_eq!((target.model.as_str(), target.sequence.as_deref()), ("m", Some("s")));
    }
}
