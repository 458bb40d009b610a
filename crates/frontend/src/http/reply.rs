//! Replies of fixed form.
use http::{
    HeaderValue, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, VARY, WWW_AUTHENTICATE,
    },
};
use hyper::ext::ReasonPhrase;
use vocabulary::{BudgetExceeded, Error};

use super::body::{BodyFailure, ResponseBody};
use crate::{
    access::{AccessDenied, AccessLine},
    error,
};

/// A reply to a request.
pub(crate) type HttpReply = Response<ResponseBody>;

/// What a handler has made of a request.
pub(super) type HttpOutcome = Result<HttpReply, HttpFailure>;

/// The reply whose end ends the line of its request in the access log.
pub(super) fn end_line(line: Option<Box<AccessLine>>, reply: HttpReply) -> HttpReply {
    match line {
        None => reply,
        Some(mut line) => {
            line.set_status(reply.status().as_u16());
            reply.map(|body| body.logged(line))
        }
    }
}

/// Why the handler has no regular reply.
#[derive(Debug)]
pub(super) enum HttpFailure {
    /// An error for the client. The connection stays open.
    Error(Error),
    /// The server does not support the coding of the request. The reply lists the supported codings.
    Coding(Error),
    /// The server cannot read the body. The connection ends.
    Broken(StatusCode, &'static str),
}

impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<BudgetExceeded> for HttpFailure {
    fn from(refused: BudgetExceeded) -> Self {
        Self::Error(refused.into())
    }
}

impl From<BodyFailure> for HttpFailure {
    fn from(failure: BodyFailure) -> Self {
        match failure {
            BodyFailure::Refused(error) => Self::Error(error),
            BodyFailure::Broken(status, text) => Self::Broken(status, text),
        }
    }
}

impl HttpFailure {
    /// The reply that reports the failure.
    pub(super) fn reply(self) -> HttpReply {
        match self {
            Self::Error(error) => of_error(&error),
            Self::Coding(error) => {
                let mut reply = of_error(&error);
                reply.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
                reply
            }
            Self::Broken(status, text) => {
                let mut reply = json(status, error::body(text));
                reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                reply
            }
        }
    }
}

/// A reply with a JSON body, which may be empty.
pub(crate) fn json(status: StatusCode, body: impl Into<ResponseBody>) -> HttpReply {
    typed(status, "application/json", body)
}

/// A reply with a body of this content type.
pub(crate) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<ResponseBody>,
) -> HttpReply {
    let body = body.into();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// A reply without a body. It has a content type all the same, as in the reference.
pub(crate) fn bare(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(ResponseBody::default());
    *reply.status_mut() = status;
    // The headers have this order in the reference.
    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// The reply to an error, with the status of its code. The content type is always JSON, like the body (P-W10).
pub(crate) fn of_error(error: &Error) -> HttpReply {
    json(error::status(error.code), error::body(&error.message))
}

/// The address has moved to this one, relative to it.
pub(crate) fn moved(location: &'static str) -> HttpReply {
    let mut reply = bare(StatusCode::PERMANENT_REDIRECT);
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static(location));
    reply
}

/// What the client looks for is at this address, relative to the one that it has asked for.
pub(crate) fn see(location: &'static str) -> HttpReply {
    let mut reply = bare(StatusCode::SEE_OTHER);
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static(location));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    reply
}

/// The refusal of a request that its API key does not permit.
pub(crate) fn denied(denied: &AccessDenied) -> HttpReply {
    let mut reply = json(denied.status(), error::body(&denied.to_string()));
    if denied.status() == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

/// `{"error":"Not Found"}`
pub(crate) fn not_found() -> HttpReply {
    json(StatusCode::NOT_FOUND, error::body("Not Found"))
}

/// `{"error":"Method Not Allowed"}`, with the reference's reason phrase for the status, and the methods that are allowed.
pub(crate) fn not_allowed(allowed: &'static str) -> HttpReply {
    refused_method(json(StatusCode::METHOD_NOT_ALLOWED, error::body("Method Not Allowed")), allowed)
}

/// The same without a body.
pub(crate) fn bare_not_allowed(allowed: &'static str) -> HttpReply {
    refused_method(bare(StatusCode::METHOD_NOT_ALLOWED), allowed)
}

fn refused_method(mut reply: HttpReply, allowed: &'static str) -> HttpReply {
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply.extensions_mut().insert(ReasonPhrase::from_static(b"Not Allowed"));
    reply
}
