//! The HTTP status of each error, and the body with its text.
use http::StatusCode;
use kserve::json_text::write_string;
use vocabulary::{Error, ErrorCode};

use crate::access::{KnownFacts, RequestFacts};

/// The HTTP status of an error. As Triton: http_server.cc, HttpCodeFromError.
pub fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Unavailable | ErrorCode::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Unknown | ErrorCode::InvalidArgument | ErrorCode::AlreadyExists | ErrorCode::Cancelled => {
            StatusCode::BAD_REQUEST
        }
    }
}

/// `{"error":"<message>"}`, the body of every HTTP error.
pub fn body(message: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(message.len() + 16);
    body.extend_from_slice(br#"{"error":"#);
    write_string(&mut body, message.as_bytes());
    body.push(b'}');
    body
}

/// Writes an error that the client gets to the log, with `--log-verbose`.
pub(crate) fn note(what: &str, error: &Error, facts: Option<&RequestFacts>) {
    let Some(KnownFacts { model, version: Some(version), request_id, .. }) = facts.map(RequestFacts::read)
    else {
        log::debug!("{what} failed: {}", error.with_code());
        return;
    };
    log::debug!(model:%, version, request_id:%; "{what} failed: {}", error.with_code());
}

/// Whether [`note`] writes anything.
pub(crate) fn is_noted() -> bool {
    log::log_enabled!(log::Level::Debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_status() {
        use ErrorCode::*;
        let expected = [
            (Unknown, 400),
            (Internal, 500),
            (NotFound, 404),
            (InvalidArgument, 400),
            (Unavailable, 503),
            (Unsupported, 501),
            (AlreadyExists, 400),
            (Cancelled, 400),
            (ResourceExhausted, 503),
        ];
        for (code, number) in expected {
            assert_eq!(status(code).as_u16(), number, "{code:?}");
        }
    }

    #[test]
    fn a_text_with_quotes_stays_json() {
        assert_eq!(body("no \"x\"\n"), br#"{"error":"no \"x\"\n"}"#);
    }
}
