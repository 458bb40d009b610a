//! An HTTP/1.1 connection with the least possible work for the client.
//!
//! The generator often shares the processor with the server that it measures. So a request is one write of prepared
//! bytes. The client reads only the necessary parts of a response: status, `Content-Length`, and whether the connection
//! stays open. It counts the body of a valid response and does not keep it. Servers of the protocol always state the
//! length, so the client refuses chunked responses.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::call_outcome::{CallFailure, CallTimes};
use crate::endpoint::{ServerEndpoint, ServerStream};

/// The size of the buffer, in bytes. It is large enough to read megabytes of tensors in few reads.
const BUFFER_SIZE: usize = 256 * 1024;
/// The most bytes of an error body that the client keeps.
const MAX_KEPT: usize = 1 << 20;

/// One connection. After a [`CallFailure::Broken`] the caller must replace it.
pub(crate) struct HttpConnection {
    stream: ServerStream,
    buffer: Box<[u8]>,
}

/// The body of a valid response.
pub(crate) struct HttpAnswer {
    pub(crate) body: Bytes,
    /// The length of its JSON, in bytes. Binary tensors follow.
    pub(crate) json_length: usize,
    pub(crate) times: CallTimes,
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

struct Head {
    status: u16,
    content_length: usize,
    /// The length of the JSON in the body, if tensors follow it.
    json_length: Option<usize>,
    closes: bool,
    /// The length of the head, in bytes: the body starts there in the buffer.
    length: usize,
}

impl HttpConnection {
    pub(crate) async fn open(endpoint: &ServerEndpoint) -> Result<HttpConnection> {
        let stream = endpoint.connect().await?;
        Ok(HttpConnection { stream, buffer: vec![0; BUFFER_SIZE].into_boxed_slice() })
    }

    /// Sends a whole request. Drops the body of the response, unless it is an error. Also tells whether the server closes
    /// the connection.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<(CallTimes, bool), CallFailure> {
        let begun = self.send(request).await.map_err(|error| broken(&error))?;
        let head = &begun.head;
        if head.status == 200 {
            let rest = (head.length + head.content_length).checked_sub(begun.filled);
            self.discard(rest).await.map_err(|error| broken(&error))?;
            return Ok((begun.times(), head.closes));
        }
        Err(self.refusal(head, begun.filled).await)
    }

    /// Sends a whole request and keeps the body of a valid response.
    ///
    /// # Errors
    /// Also if the server closes the connection: more calls must follow.
    pub(crate) async fn receive(&mut self, request: &[u8]) -> Result<HttpAnswer, CallFailure> {
        let begun = self.send(request).await.map_err(|error| broken(&error))?;
        let head = &begun.head;
        if head.status != 200 {
            return Err(self.refusal(head, begun.filled).await);
        }
        if head.closes {
            return Err(CallFailure::Broken("the server closes its connections".into()));
        }
        let mut body = BytesMut::with_capacity(head.content_length);
        body.extend_from_slice(&self.buffer[head.length..begun.filled]);
        while body.len() < head.content_length {
            let count = self.read(0).await.map_err(|error| broken(&error))?;
            body.extend_from_slice(&self.buffer[..count]);
        }
        let json_length = head.json_length.unwrap_or(body.len());
        if body.len() > head.content_length || json_length > body.len() {
            return Err(CallFailure::Broken("the answer has another length than announced".into()));
        }
        Ok(HttpAnswer { body: body.freeze(), json_length, times: begun.times() })
    }

    /// The error of a response whose status is not 200.
    async fn refusal(&mut self, head: &Head, filled: usize) -> CallFailure {
        let body = match self.body(head, filled).await {
            Ok(body) => body,
            Err(error) => return broken(&error),
        };
        let message = format!("{} {}", head.status, error_text(&body));
        if head.closes { CallFailure::Broken(message) } else { CallFailure::Refused(message) }
    }

    /// Sends a whole request and returns the body of a valid response.
    ///
    /// # Errors
    /// The connection failed or the status is not 200.
    pub(crate) async fn fetch(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let BegunAnswer { head, filled, .. } = self.send(request).await?;
        let body = self.body(&head, filled).await?;
        match head.status {
            200 => Ok(body),
            status => bail!("{status} {}", error_text(&body)),
        }
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

    async fn discard(&mut self, rest: Option<usize>) -> Result<()> {
        let mut rest = rest.context("the answer is longer than announced")?;
        while rest > 0 {
            let count = self.read(0).await?;
            rest = rest.checked_sub(count).context("the answer is longer than announced")?;
        }
        Ok(())
    }

    async fn body(&mut self, head: &Head, filled: usize) -> Result<Vec<u8>> {
        if head.content_length > MAX_KEPT {
            bail!("the server answered {} with {} bytes", head.status, head.content_length);
        }
        let mut body = self.buffer[head.length..filled].to_vec();
        while body.len() < head.content_length {
            let count = self.read(0).await?;
            body.extend_from_slice(&self.buffer[..count]);
        }
        Ok(body)
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
        content_length: 0,
        json_length: None,
        closes: false,
        length: end + 4,
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            parsed.content_length = value.parse().context("the answer has no proper Content-Length")?;
        } else if name.eq_ignore_ascii_case("inference-header-content-length") {
            parsed.json_length =
                Some(value.parse().context("the answer has no proper Inference-Header-Content-Length")?);
        } else if name.eq_ignore_ascii_case("connection") {
            parsed.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!("the answer is chunked, which is not expected of an inference server");
        }
    }
    Ok(Some(parsed))
}

/// The text of an `{"error": ".."}` body. For any other body, its beginning.
fn error_text(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
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
        assert_eq!((head.status, head.content_length, head.closes), (200, 12, true));
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
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(parse_head(head.as_bytes()).is_err(), "{head}");
        }
    }

    #[test]
    fn the_error_member_is_preferred_to_the_whole_body() {
        assert_eq!(error_text(br#"{"error":"no such model"}"#), "no such model");
        assert_eq!(error_text(b"plain"), "plain");
    }
}
