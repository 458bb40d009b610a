//! Replies of fixed form.
use http::{
    HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE},
};
use hyper::ext::ReasonPhrase;
use inference::Error;

use super::body::ResponseBody;
use crate::error;

/// A reply to a request.
pub(crate) type HttpReply = Response<ResponseBody>;

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

/// `{"error":"Not Found"}`
pub(crate) fn not_found() -> HttpReply {
    json(StatusCode::NOT_FOUND, error::body("Not Found"))
}

/// `{"error":"Method Not Allowed"}`, with the reference's reason phrase for the status.
pub(crate) fn not_allowed() -> HttpReply {
    let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, error::body("Method Not Allowed"));
    reply.extensions_mut().insert(ReasonPhrase::from_static(b"Not Allowed"));
    reply
}
