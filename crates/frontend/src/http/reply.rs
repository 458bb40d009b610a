//! Answers of fixed form.
use http::{
    HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE},
};
use hyper::ext::ReasonPhrase;
use inference::Error;

use super::body::ResponseBody;
use crate::error;

/// An answer on its way to the connection.
pub(crate) type HttpReply = Response<ResponseBody>;

/// Why there is no answer of the usual form.
#[derive(Debug)]
pub(super) enum HttpFailure {
    /// Told to the client, which may go on.
    Error(Error),
    /// A coding of the request that nobody understands; the answer says which ones are.
    Coding(Error),
    /// The body cannot be read; the connection ends.
    Broken(StatusCode, &'static str),
}

impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl HttpFailure {
    /// The answer that tells it.
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

/// JSON, empty or not.
pub(crate) fn json(status: StatusCode, body: impl Into<ResponseBody>) -> HttpReply {
    typed(status, "application/json", body)
}

/// A body of some type.
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

/// No body, and, as the reference has it, a type all the same.
pub(crate) fn bare(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(ResponseBody::default());
    *reply.status_mut() = status;
    // In this order, as the reference does.
    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// An error with the status of its code. Always as JSON, which it is (P-W10).
pub(crate) fn of_error(error: &Error) -> HttpReply {
    json(error::status(error.code), error::body(&error.message))
}

/// `{"error":"Not Found"}`
pub(crate) fn not_found() -> HttpReply {
    json(StatusCode::NOT_FOUND, error::body("Not Found"))
}

/// `{"error":"Method Not Allowed"}`, under the reference's name for the status.
pub(crate) fn not_allowed() -> HttpReply {
    let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, error::body("Method Not Allowed"));
    reply.extensions_mut().insert(ReasonPhrase::from_static(b"Not Allowed"));
    reply
}
