//! A gRPC client on a bare HTTP/2 connection: messages are bytes, and the status is returned as received.
use std::{
    io::Write,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::percent_decode_str;
use tokio::{net::TcpStream, sync::mpsc, task::JoinHandle};
use vocabulary::with_causes;

/// Why a call has no status: the connection or the stream broke.
pub type Broken = String;

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Outgoing>,
    connection: JoinHandle<()>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The number of the code.
    pub code: u32,
    /// The decoded message.
    pub message: String,
}

impl Status {
    /// The name of the code, such as `OK`.
    pub fn name(&self) -> &'static str {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        usize::try_from(self.code).ok().and_then(|code| NAMES.get(code)).copied().unwrap_or("no such code")
    }
}

/// A message with its prefix of five bytes.
pub fn framed(message: &[u8]) -> Bytes {
    frame(0, message)
}

/// As [`framed`], but compressed with gzip. The call must have the metadata `grpc-encoding: gzip`.
pub fn framed_gzip(message: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message).expect("a vector takes all bytes");
    frame(1, &encoder.finish().expect("a vector takes all bytes"))
}

fn frame(compressed: u8, message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(compressed);
    framed.put_u32(u32::try_from(message.len()).expect("messages of tests are small"));
    framed.extend_from_slice(message);
    framed.freeze()
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// No server listens at the address, or it does not use HTTP/2.
    pub async fn open(address: SocketAddr) -> Result<Self, Broken> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| with_causes(&error))?;
        let connection = tokio::spawn(async move {
            // The calls on the connection return its error.
            let _ = connection.await;
        });
        Ok(Self { sender, connection })
    }

    /// Begins a call of `path`. Sends nothing until the returned future is awaited.
    ///
    /// # Errors
    /// The connection is closed, or refuses the stream.
    pub async fn call(&self, path: &str, metadata: &[(String, String)]) -> Result<Call, Broken> {
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in metadata {
            request = request.header(name, value);
        }
        let (frames, receiver) = mpsc::unbounded_channel();
        let request = request.body(Outgoing { receiver }).map_err(|error| error.to_string())?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|error| with_causes(&error))?;
        let response =
            tokio::spawn(
                async move { sender.send_request(request).await.map_err(|error| with_causes(&error)) },
            );
        Ok(Call {
            frames: Some(frames),
            answer: Answer::Coming(response),
            received: BytesMut::new(),
            trailers: None,
        })
    }

    /// Calls `path` with one message and returns all messages and the status.
    ///
    /// # Errors
    /// The connection or the stream broke.
    pub async fn unary(
        &self,
        path: &str,
        metadata: &[(String, String)],
        message: Bytes,
    ) -> Result<(Vec<Bytes>, Status), Broken> {
        let mut call = self.call(path, metadata).await?;
        call.send(message);
        call.finish();
        call.rest().await
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.connection.is_finished() || self.sender.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A call under way. Dropping it cancels it.
#[derive(Debug)]
pub struct Call {
    frames: Option<mpsc::UnboundedSender<Bytes>>,
    answer: Answer,
    received: BytesMut,
    trailers: Option<HeaderMap>,
}

#[derive(Debug)]
enum Answer {
    Coming(JoinHandle<Result<http::Response<Incoming>, Broken>>),
    Here(HeaderMap, Incoming),
}

impl Call {
    /// Sends bytes, usually a [`framed`] message. Ignored after [`Call::finish`].
    pub fn send(&self, bytes: Bytes) {
        if let Some(frames) = &self.frames {
            // Fails if the server has ended the call. The status contains the reason.
            let _ = frames.send(bytes);
        }
    }

    /// Ends the requests of the call.
    pub fn finish(&mut self) {
        self.frames = None;
    }

    /// The next message; `None` when the server has ended the call.
    ///
    /// # Errors
    /// The connection or the stream broke, or the received bytes are not gRPC.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        self.arrive().await?;
        let Answer::Here(_, body) = &mut self.answer else { unreachable!("the answer has arrived") };
        loop {
            if let Some(message) = cut(&mut self.received)? {
                return Ok(Some(message));
            }
            match body.frame().await {
                None if self.received.is_empty() => return Ok(None),
                None => return Err("ended within a message".into()),
                Some(Err(error)) => return Err(with_causes(&error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.received.extend_from_slice(&data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// The remaining messages and the status.
    ///
    /// # Errors
    /// As [`Call::next`].
    pub async fn rest(mut self) -> Result<(Vec<Bytes>, Status), Broken> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await? {
            messages.push(message);
        }
        Ok((messages, self.status()?))
    }

    /// A value of the metadata behind the messages. They have come when [`Call::next`] has returned `None`.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.as_ref()?.get(name)?.to_str().ok()
    }

    async fn arrive(&mut self) -> Result<(), Broken> {
        let Answer::Coming(response) = &mut self.answer else { return Ok(()) };
        let response = response.await.map_err(|error| error.to_string())??;
        if response.status() != StatusCode::OK {
            return Err(format!("HTTP status {}", response.status()));
        }
        let (head, body) = response.into_parts();
        self.answer = Answer::Here(head.headers, body);
        Ok(())
    }

    /// An answer without messages may have its status in the head.
    fn status(&self) -> Result<Status, Broken> {
        let head = match &self.answer {
            Answer::Here(head, _) => Some(head),
            Answer::Coming(_) => None,
        };
        let headers = self.trailers.as_ref().or(head).ok_or("no status")?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let code = text("grpc-status").ok_or("no grpc-status")?;
        let message =
            percent_decode_str(text("grpc-message").unwrap_or_default()).decode_utf8_lossy().into_owned();
        Ok(Status { code: code.parse().map_err(|_| format!("a grpc-status of '{code}'"))?, message })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Answer::Coming(response) = &self.answer {
            response.abort();
        }
    }
}

/// Takes a whole message off the front, if there is one.
fn cut(received: &mut BytesMut) -> Result<Option<Bytes>, Broken> {
    let Some((prefix, rest)) = received.split_first_chunk::<5>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err("a compressed message, which nobody asked for".into());
    }
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|error| error.to_string())?;
    if rest.len() < length {
        return Ok(None);
    }
    received.advance(5);
    Ok(Some(received.split_to(length).freeze()))
}

/// The body of a call: the frames that the test sends while the call lasts.
#[derive(Debug)]
struct Outgoing {
    receiver: mpsc::UnboundedReceiver<Bytes>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.receiver.poll_recv(context).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_off_one_by_one() {
        let mut received =
            BytesMut::from(&[&framed(b"ab")[..], &framed(b""), &framed(b"cde")[..6]].concat()[..]);
        assert_eq!(cut(&mut received), Ok(Some(Bytes::from("ab"))));
        assert_eq!(cut(&mut received), Ok(Some(Bytes::new())));
        assert_eq!(cut(&mut received), Ok(None));
        assert!(cut(&mut BytesMut::from(&framed_gzip(b"ab")[..])).is_err());
    }

    #[test]
    fn codes_have_names() {
        let name = |code| Status { code, message: String::new() }.name();
        assert_eq!((name(0), name(12), name(17)), ("OK", "UNIMPLEMENTED", "no such code"));
    }
}
