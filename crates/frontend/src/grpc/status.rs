//! The status of a call: gRPC's code and a text, and how both are written to headers or trailers.
use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use vocabulary::{Error, ErrorCode};

use super::message::decode::InvalidMessage;
use crate::access::AccessDenied;

pub(crate) use tonic::Code;

/// The header or trailer with the code.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The header or trailer with the text.
pub(crate) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The characters to escape: all but printable ASCII, and the percent sign, which begins an escape.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The longest encoded text, in bytes. If the trailers exceed 8 KiB, clients end the call and show no text at all.
const MAX_TEXT: usize = 6 << 10;

/// A code and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    code: Code,
    message: Cow<'static, str>,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The status of a call that succeeded.
    pub(crate) const fn ok() -> Self {
        Self { code: Code::Ok, message: Cow::Borrowed("") }
    }

    /// The bytes are not a message of the expected type.
    pub(crate) const fn unparsable() -> Self {
        Self { code: Code::Internal, message: Cow::Borrowed("Unable to parse request") }
    }

    /// The client's deadline has passed.
    pub(crate) const fn late() -> Self {
        Self { code: Code::DeadlineExceeded, message: Cow::Borrowed("Deadline Exceeded") }
    }

    /// The server accepts no new calls.
    pub(crate) const fn stopping() -> Self {
        Self {
            code: Code::Unavailable,
            message: Cow::Borrowed("GRPC server is shutting down and has stopped accepting new requests."),
        }
    }

    /// Writes the code, and the text unless it is empty.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(GRPC_STATUS, code_value(self.code));
        if self.message.is_empty() {
            return;
        }
        // The rest would be cut off anyway. It may be a name of many megabytes that a client has sent.
        let start = &self.message[..self.message.floor_char_boundary(MAX_TEXT)];
        let mut text: String = percent_encode(start.as_bytes(), ESCAPED).collect();
        if text.len() > MAX_TEXT {
            // The text must not end inside an escape.
            let end = (MAX_TEXT - 2..MAX_TEXT).find(|&end| text.as_bytes()[end] == b'%').unwrap_or(MAX_TEXT);
            text.truncate(end);
        }
        headers.insert(GRPC_MESSAGE, HeaderValue::try_from(text).expect("what is left is printable ASCII"));
    }

    /// The status as trailers.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(if self.message.is_empty() { 1 } else { 2 });
        self.write(&mut trailers);
        trailers
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self { code: code(error.code), message: error.message }
    }
}

impl From<InvalidMessage> for Status {
    fn from(invalid: InvalidMessage) -> Self {
        match invalid {
            InvalidMessage::Malformed => Self::unparsable(),
            InvalidMessage::Refused(error) => error.into(),
        }
    }
}

impl From<AccessDenied> for Status {
    fn from(denied: AccessDenied) -> Self {
        let code = match &denied {
            AccessDenied::NoKey | AccessDenied::UnknownKey => Code::Unauthenticated,
            AccessDenied::Category(..) | AccessDenied::Model(..) => Code::PermissionDenied,
        };
        Self::new(code, denied.to_string())
    }
}

/// As Triton: grpc_utils.cc, CodeToStatus.
fn code(code: ErrorCode) -> Code {
    match code {
        ErrorCode::Unknown => Code::Unknown,
        ErrorCode::Internal => Code::Internal,
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::InvalidArgument => Code::InvalidArgument,
        ErrorCode::Unavailable => Code::Unavailable,
        ErrorCode::Unsupported => Code::Unimplemented,
        ErrorCode::AlreadyExists => Code::AlreadyExists,
        ErrorCode::Cancelled => Code::Cancelled,
        ErrorCode::ResourceExhausted => Code::ResourceExhausted,
    }
}

fn code_value(code: Code) -> HeaderValue {
    const TEXTS: [&str; 17] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
    HeaderValue::from_static(TEXTS[code as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &str) -> String {
        let trailers = Status::new(Code::Internal, message.to_owned()).trailers();
        trailers[GRPC_MESSAGE].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_text_is_escaped_as_the_protocol_says() {
        assert_eq!(written("input 'X': 100% \"ü\"\n"), "input 'X': 100%25 \"%C3%BC\"%0A");
    }

    #[test]
    fn a_successful_call_has_no_text() {
        let trailers = Status::ok().trailers();
        assert_eq!(trailers[GRPC_STATUS], "0");
        assert!(!trailers.contains_key(GRPC_MESSAGE));
    }

    #[test]
    fn a_huge_text_is_cut_between_two_escapes() {
        for lead in 0..3 {
            let text = written(&("a".repeat(lead) + &"\n".repeat(4000)));
            assert!(text.len() <= MAX_TEXT && text.len() > MAX_TEXT - 3);
            assert!(text.ends_with("%0A"));
        }
    }

    #[test]
    fn each_code_is_its_number() {
        let error = Error::new(ErrorCode::Unsupported, "no");
        assert_eq!(Status::from(error).trailers()[GRPC_STATUS], "12");
        assert_eq!(Status::new(Code::Unauthenticated, "").trailers()[GRPC_STATUS], "16");
    }
}
