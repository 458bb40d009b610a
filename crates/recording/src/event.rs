//! The file of recorded traffic: a JSON object in each line, for one event.
//!
//! Lines have the order of their writing. The lines of a call have its number. Times are microseconds since the begin of the
//! recording. docs/recording.md describes the file for its users.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The version of the form of these lines.
pub(crate) const FORM: u32 = 1;

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RecordedEvent {
    /// The first line.
    Recording { form: u32, started_unix_us: u64 },
    /// A call: its head, and its body unless it is a stream of messages.
    Request(RecordedRequest),
    /// A message of a call that is a stream.
    Message { call: u64, at_us: u64, body: RecordedBody },
    /// The client has sent its last message.
    EndOfMessages { call: u64, at_us: u64 },
    /// A message that answers a call that is a stream.
    AnswerMessage { call: u64, at_us: u64, body: RecordedBody },
    /// A call has its answer, to the last byte.
    Answer(RecordedAnswer),
}

/// See [`RecordedEvent::Request`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    pub(crate) call: u64,
    /// When its head arrived.
    pub(crate) at_us: u64,
    pub(crate) protocol: CallProtocol,
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: RecordedBody,
}

/// See [`RecordedEvent::Answer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedAnswer {
    pub(crate) call: u64,
    /// When its last byte arrived.
    pub(crate) at_us: u64,
    /// Of HTTP. Answers of gRPC have their status in the headers or the trailers.
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) body: RecordedBody,
}

/// What a call speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallProtocol {
    Http,
    Grpc,
}

/// The bytes of a request, a message or an answer. Messages of gRPC have their frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedBody {
    Text(String),
    Base64(String),
    /// They are not in the file, for this reason.
    Omitted(String),
    /// They are in lines of their own.
    Stream,
}

impl RecordedBody {
    /// The form for the file.
    pub(crate) fn of(bytes: Vec<u8>) -> RecordedBody {
        match String::from_utf8(bytes) {
            Ok(text) => RecordedBody::Text(text),
            Err(error) => RecordedBody::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }

    /// The bytes. `None` if they are not in this line.
    ///
    /// # Errors
    /// It is not Base64.
    pub(crate) fn into_bytes(self) -> Result<Option<Bytes>, base64::DecodeError> {
        match self {
            RecordedBody::Text(text) => Ok(Some(text.into())),
            RecordedBody::Base64(text) => Ok(Some(BASE64_STANDARD.decode(text)?.into())),
            RecordedBody::Omitted(_) | RecordedBody::Stream => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_easy_to_read() {
        let request = RecordedRequest {
            call: 7,
            at_us: 1500,
            protocol: CallProtocol::Http,
            method: "POST".into(),
            path: "/v2/models/m/infer".into(),
            headers: vec![("a".into(), "b".into())],
            body: RecordedBody::of(b"{}".to_vec()),
        };
        let line = serde_json::to_string(&RecordedEvent::Request(request.clone())).unwrap();
        assert_eq!(
            line,
            r#"{"event":"request","call":7,"at_us":1500,"protocol":"http","method":"POST","path":"/v2/models/m/infer","headers":[["a","b"]],"body":{"text":"{}"}}"#
        );
        assert_eq!(serde_json::from_str::<RecordedEvent>(&line).unwrap(), RecordedEvent::Request(request));
        let end = RecordedEvent::EndOfMessages { call: 1, at_us: 2 };
        assert_eq!(serde_json::to_string(&end).unwrap(), r#"{"event":"end_of_messages","call":1,"at_us":2}"#);
    }

    #[test]
    fn bytes_come_back() {
        for bytes in [&b""[..], b"text", b"\xff\0\x80"] {
            let body = RecordedBody::of(bytes.to_vec());
            assert_eq!(body.into_bytes().unwrap().unwrap(), bytes);
        }
        assert_eq!(RecordedBody::Stream.into_bytes().unwrap(), None);
        assert!(RecordedBody::Base64("?".into()).into_bytes().is_err());
        assert_eq!(serde_json::to_string(&RecordedBody::Stream).unwrap(), r#""stream""#);
    }
}
