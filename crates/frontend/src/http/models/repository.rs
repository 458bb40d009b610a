//! What operators do: index, load, unload, and the response cache of a model.
use engine::IndexEntry;
use http::StatusCode;
use kserve::show;
use repository::LoadParameters;
use vocabulary::Error;

use crate::{
    access::Access,
    http::{
        base64_text,
        body::ResponseBody,
        call::HttpCall,
        context::{HttpContext, JsonLimit},
        json::{Document, JsonText, JsonValue},
        json_work,
        reply::{self, HttpOutcome, HttpReply},
        route_rules::ModelPath,
    },
};

/// `POST /v2/repository/index`
pub(super) async fn index(context: &HttpContext, call: &mut HttpCall<'_>) -> HttpOutcome {
    let ready_only = context.read_members(call.body, ready_only).await?;
    Ok(reply::json(StatusCode::OK, show::index(&visible_index(context, ready_only, &call.access).await)))
}

/// `GET /v2/models`
pub(super) async fn list(context: &HttpContext, call: &mut HttpCall<'_>) -> HttpReply {
    reply::json(StatusCode::OK, show::models(&visible_index(context, false, &call.access).await))
}

async fn visible_index(context: &HttpContext, ready_only: bool, access: &Access) -> Vec<IndexEntry> {
    let mut index = context.engine.index(ready_only).await;
    index.retain(|entry| access.shows(&entry.name));
    index
}

/// `POST /v2/repository/models/{M}/load`
pub(super) async fn load(context: &HttpContext, call: &mut HttpCall<'_>, model: &str) -> HttpOutcome {
    let mut received = context.read_json(call.body, JsonLimit::Input).await?;
    // The files are copied. All is counted until the model is loaded.
    received.reservation.grow(received.bytes.len())?;
    let (overrides, mut reservation) = json_work::read(received, load_parameters).await??;
    reservation.grow(overrides.reading_bytes())?;
    context.engine.repository().load(model, overrides).await?;
    Ok(reply::json(StatusCode::OK, ResponseBody::default()))
}

/// `POST /v2/repository/models/{M}/unload`
pub(super) async fn unload(context: &HttpContext, call: &mut HttpCall<'_>, model: &str) -> HttpOutcome {
    if context.read_members(call.body, unload_dependents).await? {
        context.engine.repository().unload_with_dependents(model).await?;
    } else {
        context.engine.repository().unload(model).await?;
    }
    Ok(reply::json(StatusCode::OK, ResponseBody::default()))
}

/// `POST /v2/models/{M}[/versions/{V}]/empty_cache`
pub(super) async fn empty_cache(context: &HttpContext, path: &ModelPath<'_>) -> HttpOutcome {
    let removed = context.engine.empty_cache(&path.model, path.version()?).await?;
    Ok(reply::json(StatusCode::OK, format!("{{\"removed\":{removed}}}")))
}

/// The `ready` member of an index request. The request may have no body.
fn ready_only(json: &[u8]) -> Result<bool, Error> {
    if json.is_empty() {
        return Ok(false);
    }
    let document = Document::parse_members(json)?;
    match document.root().find("ready").map(JsonValue::as_bool) {
        None => Ok(false),
        Some(Ok(ready)) => Ok(ready),
        Some(Err(_)) => Err(Error::invalid("Invalid value for 'ready': expected a boolean")),
    }
}

/// What a load request brings. The request may have no body.
fn load_parameters(json: JsonText<'_>) -> Result<LoadParameters, Error> {
    let mut overrides = LoadParameters::default();
    if json.bytes().is_empty() {
        return Ok(overrides);
    }
    let document = Document::parse_members(json)?;
    let Some(parameters) = document.root().find("parameters") else { return Ok(overrides) };
    for (key, value) in parameters.members()? {
        let value = value.as_bytes()?;
        if key == b"config" {
            overrides.config = Some(String::from_utf8_lossy(value).into_owned());
        } else if let Some(path) = key.strip_prefix(b"file:") {
            let path = String::from_utf8_lossy(path).into_owned();
            let content = base64_text::decode(value).map_err(|error| {
                Error::invalid(format!(
                    "failed to decode the base64 of load parameter 'file:{path}': {error}"
                ))
            })?;
            overrides.files.push((path, content.into()));
        } else {
            return Err(Error::internal("unexpected error on creating Triton parameter"));
        }
    }
    Ok(overrides)
}

/// The `unload_dependents` parameter of an unload request. The request may have no body.
fn unload_dependents(json: &[u8]) -> Result<bool, Error> {
    if json.is_empty() {
        return Ok(false);
    }
    let document = Document::parse_members(json)?;
    let parameters = document.root().find("parameters");
    let Some(wanted) = parameters.and_then(|members| members.find("unload_dependents")) else {
        return Ok(false);
    };
    // The reference unloads the model in spite of this error (P-W18).
    wanted.as_bool().map_err(|error| Error::invalid(format!("Unable to parse 'unload_dependents': {error}")))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::error::status;

    fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
        let error = result.unwrap_err();
        (status(error.code).as_u16(), error.message.into_owned())
    }

    fn parameters(json: &[u8]) -> Result<LoadParameters, Error> {
        load_parameters(json.into())
    }

    #[test]
    fn an_index_may_ask_for_ready_models_only() {
        assert_eq!(ready_only(b""), Ok(false));
        assert_eq!(ready_only(b"{}"), Ok(false));
        assert_eq!(ready_only(br#"{"ready":true}"#), Ok(true));
        let text = "Invalid value for 'ready': expected a boolean";
        assert_eq!(refused(ready_only(br#"{"ready":1}"#)), (400, text.into()));
        for depth in [1, 1_000_000] {
            let deep = format!(r#"{{"ready":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            assert_eq!(refused(ready_only(deep.as_bytes())), (400, text.into()));
        }
        let text = "failed to parse the request JSON buffer: Missing a name for object member. at 1";
        assert_eq!(refused(ready_only(b"{")), (500, text.into()));
    }

    #[test]
    fn a_load_may_bring_a_configuration_and_files() {
        assert_eq!(parameters(b""), Ok(LoadParameters::default()));
        assert_eq!(parameters(br#"{"parameters":{}}"#), Ok(LoadParameters::default()));
        let overrides = parameters(br#"{"parameters":{"config":"{\"a\":1}","file:1/a":"YQ=="}}"#).unwrap();
        assert_eq!(overrides.config.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(overrides.files, [("1/a".to_owned(), Bytes::from("a"))]);
        for text in ["YWJjZA==", "YWJjZA", "YWJj\\nZA==\\n", " YWJjZA==", "YWJj\\r\\nZA", "YWJjZB"] {
            let overrides = parameters(format!(r#"{{"parameters":{{"file:1/a":"{text}"}}}}"#).as_bytes());
            assert_eq!(overrides.unwrap().files, [("1/a".to_owned(), Bytes::from("abcd"))], "{text}");
        }
        let text = "unexpected error on creating Triton parameter";
        assert_eq!(refused(parameters(br#"{"parameters": {"foo": "x"}}"#)), (500, text.into()));
        let text = "attempt to access JSON non-string as string";
        assert_eq!(refused(parameters(br#"{"parameters": {"config": {"a": 1}}}"#)), (500, text.into()));
        for wrong in ["%", "?", "YWJ-", "YWJjZ", "YQ==YQ=="] {
            let (status, text) =
                refused(parameters(format!(r#"{{"parameters":{{"file:1/a":"{wrong}"}}}}"#).as_bytes()));
            assert_eq!(status, 400, "{wrong}");
            assert!(text.starts_with("failed to decode the base64 of load parameter 'file:1/a': "), "{text}");
        }
    }

    #[test]
    fn a_body_that_is_no_json_does_not_unload() {
        let text = "failed to parse the request JSON buffer: Invalid value. at 0";
        assert_eq!(refused(unload_dependents(b"x")), (500, text.into()));
    }

    #[test]
    fn a_wrong_type_does_not_unload() {
        assert_eq!(unload_dependents(br#"{"parameters":{"unload_dependents":true}}"#), Ok(true));
        assert_eq!(unload_dependents(b"{}"), Ok(false));
        let text = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean";
        assert_eq!(
            refused(unload_dependents(br#"{"parameters":{"unload_dependents":"yes"}}"#)),
            (400, text.into())
        );
    }
}
