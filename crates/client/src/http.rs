//! An HTTP/1.1 connection with the least possible work for the client.
//!
//! A request is one write of prepared bytes. The client reads only the necessary parts of a response: status, where its body ends, and whether the
//! connection stays open. It counts the body of a valid response and does not keep it. Of a stream of events it keeps one
//! event at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::answer_body::{AnswerBody, ChunkDecoder};
use crate::call_outcome::{CallFailure, CallTimes};
use crate::endpoint::{ServerEndpoint, ServerStream};
use crate::events::{EventReader, event_error};

/// The size of the buffer, in bytes. It is large enough to read megabytes of tensors in few reads.
const BUFFER_SIZE: usize = 256 * 1024;
/// The most bytes of an error body that the client keeps.
const MOST_KEPT: usize = 1 << 20;
/// The most bytes of the body of a valid response that the client keeps, where it needs the outputs.
const MOST_RECEIVED: usize = 1 << 32;

/// One connection. After a [`CallFailure::Broken`] the caller must replace it.
pub struct HttpConnection {
    stream: ServerStream,
    buffer: Box<[u8]>,
}

/// The body of a valid response.
pub struct HttpAnswer {
    /// The bytes of the body, without its chunks.
    pub body: Bytes,
    /// The length of its JSON, in bytes. Binary tensors follow.
    pub json_length: usize,
    /// How long the exchange was busy on the network.
    pub times: CallTimes,
}

/// A response whose head has arrived.
struct BegunAnswer {
    head: Head,
    /// The number of bytes in the buffer.
    filled: usize,
    send: Duration,
    /// When the first byte arrived.
    begun: Instant,
}

impl BegunAnswer {
    /// The times of a response whose last byte has just arrived.
    fn times(&self) -> CallTimes {
        CallTimes { send: self.send, receive: self.begun.elapsed() }
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    /// Without a length and chunks, there is none.
    body: AnswerBody,
    /// The head tells where the body ends.
    is_delimited: bool,
    /// The length of the JSON in the body, if tensors follow it.
    json_length: Option<usize>,
    /// The body is a stream of server-sent events.
    has_events: bool,
    /// The body is compressed.
    is_encoded: bool,
    closes: bool,
    /// The length of the head, in bytes: the body starts there in the buffer.
    length: usize,
}

impl HttpConnection {
    /// Connects.
    ///
    /// # Errors
    /// As [`ServerEndpoint::connect`].
    pub async fn open(endpoint: &ServerEndpoint) -> Result<HttpConnection> {
        let stream = endpoint.connect().await?;
        Ok(HttpConnection { stream, buffer: vec![0; BUFFER_SIZE].into_boxed_slice() })
    }

    /// Sends a whole request. Drops the body of the response, unless it is an error. Also tells whether the server closes
    /// the connection.
    ///
    /// # Errors
    /// The server refuses the request, or the connection is lost.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<(CallTimes, bool), CallFailure> {
        let mut begun = self.begin(request).await?;
        self.read_body(&mut begun, |_| Ok(())).await.map_err(|error| broken(&error))?;
        Ok((begun.times(), begun.head.closes))
    }

    /// Sends a whole request whose response is a stream of events. Calls `on_response` for each event when it arrives.
    /// Also tells whether the server closes the connection.
    ///
    /// The client waits for the model between two events. So the time of receiving is not known, and zero.
    ///
    /// # Errors
    /// As [`HttpConnection::exchange`]. Also if an event is an error. The first one counts.
    pub async fn stream(
        &mut self,
        request: &[u8],
        mut on_response: impl FnMut(),
    ) -> Result<(CallTimes, bool), CallFailure> {
        let mut begun = self.begin(request).await?;
        begun.head.check_events().map_err(|error| broken(&error))?;
        let (mut events, mut refused) = (EventReader::new(), None);
        let read = self.read_body(&mut begun, |part| {
            events.read(part, |data| match event_error(data) {
                None => on_response(),
                Some(error) => {
                    refused.get_or_insert(error);
                }
            })
        });
        let ended = read.await.and_then(|()| events.end());
        match (refused, ended) {
            (Some(text), Ok(())) if !begun.head.closes => Err(CallFailure::Refused(text)),
            (Some(text), Ok(()) | Err(_)) => Err(CallFailure::Broken(text)),
            (None, Err(error)) => Err(broken(&error)),
            (None, Ok(())) => {
                Ok((CallTimes { send: begun.send, receive: Duration::ZERO }, begun.head.closes))
            }
        }
    }

    /// Sends a whole request and keeps the body of a valid response.
    ///
    /// # Errors
    /// Also if the server closes the connection: more calls must follow.
    pub async fn receive(&mut self, request: &[u8]) -> Result<HttpAnswer, CallFailure> {
        let mut begun = self.begin(request).await?;
        if begun.head.closes {
            return Err(CallFailure::Broken("the server closes its connections".into()));
        }
        let body = self.kept_body(&mut begun, MOST_RECEIVED).await.map_err(|error| broken(&error))?.freeze();
        let json_length = begun.head.json_length.unwrap_or(body.len());
        if json_length > body.len() {
            return Err(CallFailure::Broken("the answer has another length than announced".into()));
        }
        Ok(HttpAnswer { body, json_length, times: begun.times() })
    }

    /// Sends a whole request and returns the body of a valid response.
    ///
    /// # Errors
    /// The connection failed or the status is not 200.
    pub async fn fetch(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let mut begun = self.send(request).await?;
        let body = self.kept_body(&mut begun, MOST_KEPT).await?;
        match begun.head.status {
            200 => Ok(body.into()),
            status => bail!("{status} {}", error_text(&body)),
        }
    }

    /// Sends a whole request and reads until the head of a valid response is complete.
    async fn begin(&mut self, request: &[u8]) -> Result<BegunAnswer, CallFailure> {
        let mut begun = self.send(request).await.map_err(|error| broken(&error))?;
        if begun.head.status == 200 {
            return Ok(begun);
        }
        let body = self.kept_body(&mut begun, MOST_KEPT).await.map_err(|error| broken(&error))?;
        let message = format!("{} {}", begun.head.status, error_text(&body));
        Err(if begun.head.closes { CallFailure::Broken(message) } else { CallFailure::Refused(message) })
    }

    /// Writes the request and reads until the head of the response is complete.
    async fn send(&mut self, request: &[u8]) -> Result<BegunAnswer> {
        let sending = "the connection broke while sending";
        let start = Instant::now();
        self.stream.write_all(request).await.context(sending)?;
        // An encrypted connection may keep the end of it.
        self.stream.flush().await.context(sending)?;
        let send = start.elapsed();
        let mut filled = self.read(0).await?;
        let begun = Instant::now();
        loop {
            if let Some(head) = parse_head(&self.buffer[..filled])? {
                return Ok(BegunAnswer { head, filled, send, begun });
            }
            if filled == self.buffer.len() {
                bail!("the head of the answer does not end");
            }
            filled += self.read(filled).await?;
        }
    }

    async fn read(&mut self, from: usize) -> Result<usize> {
        match self.stream.read(&mut self.buffer[from..]).await.context("the connection broke")? {
            0 => bail!("the server closed the connection"),
            count => Ok(count),
        }
    }

    /// Reads the body to its end. Calls `keep` with each part when it arrives.
    async fn read_body(
        &mut self,
        begun: &mut BegunAnswer,
        mut keep: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let body = &mut begun.head.body;
        let mut arrived = begun.head.length..begun.filled;
        loop {
            let mut bytes = &self.buffer[arrived];
            while let Some(part) = body.next(&mut bytes)? {
                keep(part)?;
            }
            ensure!(bytes.is_empty(), "the answer is longer than announced");
            if body.is_complete() {
                return Ok(());
            }
            arrived = 0..self.read(0).await?;
        }
    }

    /// The whole body, of at most so many bytes.
    async fn kept_body(&mut self, begun: &mut BegunAnswer, most: usize) -> Result<BytesMut> {
        let status = begun.head.status;
        let announced = match &begun.head.body {
            AnswerBody::Length(length) => *length,
            AnswerBody::Chunked(_) => 0,
        };
        ensure!(announced <= most, "the server answered {status} with {announced} bytes");
        let mut body = BytesMut::with_capacity(announced);
        self.read_body(begun, |part| {
            ensure!(body.len() + part.len() <= most, "the server answered {status} with over {most} bytes");
            body.extend_from_slice(part);
            Ok(())
        })
        .await?;
        Ok(body)
    }
}

impl Head {
    /// Whether the body is one that events can be read from.
    fn check_events(&self) -> Result<()> {
        ensure!(self.has_events, "the answer is not of the type text/event-stream");
        ensure!(!self.is_encoded, "the events of the answer are compressed");
        ensure!(self.is_delimited, "the answer has neither chunks nor a Content-Length");
        Ok(())
    }
}

fn broken(error: &anyhow::Error) -> CallFailure {
    CallFailure::Broken(format!("{error:#}"))
}

/// The head of a response. `None` while it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).context("the answer is not HTTP")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    let mut parsed = Head {
        status: status.context("the answer is not HTTP")?,
        body: AnswerBody::Length(0),
        is_delimited: false,
        json_length: None,
        has_events: false,
        is_encoded: false,
        closes: false,
        length: end + 4,
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().context("the answer has no proper Content-Length")?;
            parsed.is_delimited = true;
            // Chunks count more than a length.
            if let AnswerBody::Length(known) = &mut parsed.body {
                *known = length;
            }
        } else if name.eq_ignore_ascii_case("inference-header-content-length") {
            parsed.json_length =
                Some(value.parse().context("the answer has no proper Inference-Header-Content-Length")?);
        } else if name.eq_ignore_ascii_case("connection") {
            parsed.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            ensure!(value.eq_ignore_ascii_case("chunked"), "the answer has the transfer coding '{value}'");
            parsed.is_delimited = true;
            parsed.body = AnswerBody::Chunked(ChunkDecoder::default());
        } else if name.eq_ignore_ascii_case("content-type") {
            let kind = value.split(';').next().unwrap_or_default().trim_ascii_end();
            parsed.has_events = kind.eq_ignore_ascii_case("text/event-stream");
        } else if name.eq_ignore_ascii_case("content-encoding") {
            parsed.is_encoded = !value.eq_ignore_ascii_case("identity");
        }
    }
    Ok(Some(parsed))
}

/// The text of an `{"error": ".."}` body, or of an event. For any other body, its beginning.
fn error_text(body: &[u8]) -> String {
    let json: Option<serde_json::Value> =
        serde_json::from_slice(body.strip_prefix(b"data:").unwrap_or(body)).ok();
    match json.as_ref().and_then(|json| json["error"].as_str()) {
        Some(text) => text.to_owned(),
        None => String::from_utf8_lossy(body).chars().take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whatever_the_case_of_its_names() {
        let head = parse_head(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\nConnection: Close\r\n\r\nbody")
            .unwrap()
            .unwrap();
        assert_eq!((head.status, head.body, head.closes), (200, AnswerBody::Length(12), true));
        assert_eq!(head.length, 58);
    }

    #[test]
    fn half_a_head_is_not_a_head() {
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap().is_none());
    }

    #[test]
    fn what_is_not_plain_http_is_refused() {
        for head in [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(parse_head(head.as_bytes()).is_err(), "{head}");
        }
    }

    #[test]
    fn chunks_count_more_than_a_length_and_events_have_their_type() {
        let head = |headers: &str| {
            parse_head(format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n").as_bytes()).unwrap().unwrap()
        };
        for headers in [
            "transfer-encoding: Chunked\r\ncontent-length: 3",
            "content-length: 3\r\ntransfer-encoding: Chunked",
        ] {
            assert_eq!(head(headers).body, AnswerBody::Chunked(ChunkDecoder::default()));
        }
        let check = |headers: &str| head(headers).check_events().map_err(|error| error.to_string());
        let events = "Transfer-Encoding: chunked\r\nContent-Type: text/event-stream";
        let plain = format!("{events} ; charset=utf-8\r\nContent-Encoding: identity");
        assert_eq!(check(&plain), Ok(()));
        let other = "the answer is not of the type text/event-stream";
        assert_eq!(check("Content-Type: application/json"), Err(other.into()));
        let compressed = check(&format!("{events}\r\nContent-Encoding: gzip"));
        assert_eq!(compressed, Err("the events of the answer are compressed".into()));
        let endless = "the answer has neither chunks nor a Content-Length";
        assert_eq!(check("Content-Type: text/event-stream"), Err(endless.into()));
    }

    #[test]
    fn the_error_member_is_preferred_to_the_whole_body() {
        assert_eq!(error_text(br#"{"error":"no such model"}"#), "no such model");
        assert_eq!(error_text(b"data: {\"error\":\"no such input\"}\n\n"), "no such input");
        assert_eq!(error_text(b"plain"), "plain");
    }
}
