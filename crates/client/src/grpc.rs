//! gRPC over an HTTP/2 connection of hyper. The request message is framed in advance.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

use crate::call_outcome::{CallFailure, CallTimes};
use crate::endpoint::ServerEndpoint;
use crate::framing::{FRAME_HEAD, grpc_message, next_frame};

/// The path of the service.
const SERVICE: &str = "inference.GRPCInferenceService";

/// The sizes of windows and frames. They are large enough that the client does not slow down responses of megabytes.
const STREAM_WINDOW: u32 = 32 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
const FRAME_SIZE: u32 = 1 << 20;

/// An HTTP/2 connection that any number of callers share. The first caller that finds it closed reopens it.
pub struct GrpcConnection {
    endpoint: ServerEndpoint,
    sender: RefCell<SendRequest<Full<Bytes>>>,
}

/// A call of a method with a framed message.
pub struct GrpcCall {
    parts: request::Parts,
    message: Bytes,
}

impl GrpcCall {
    /// `message` must be framed.
    ///
    /// # Errors
    /// The address of the endpoint is none of HTTP.
    pub fn new(endpoint: &ServerEndpoint, method: &str, message: Bytes) -> Result<GrpcCall> {
        let address = &endpoint.address;
        let mut request = Request::post(format!("http://{address}/{SERVICE}/{method}"))
            .body(())
            .with_context(|| format!("'{address}' is not an address"))?;
        *request.headers_mut() = (*endpoint.call_headers).clone();
        Ok(GrpcCall { parts: request.into_parts().0, message })
    }

    /// The same call with another message, which must be framed.
    pub fn with_message(&self, message: Bytes) -> GrpcCall {
        GrpcCall { parts: self.parts.clone(), message }
    }

    /// The same call with one more value among its metadata.
    pub fn with_metadata(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> GrpcCall {
        self.parts.headers.insert(name, value.into());
        self
    }

    fn into_request(self) -> Request<Full<Bytes>> {
        Request::from_parts(self.parts, Full::new(self.message))
    }
}

impl GrpcConnection {
    /// Connects.
    ///
    /// # Errors
    /// As [`ServerEndpoint::connect`], or the server does not speak HTTP/2.
    pub async fn open(endpoint: &ServerEndpoint) -> Result<GrpcConnection> {
        let sender = RefCell::new(connect(endpoint).await?);
        Ok(GrpcConnection { endpoint: endpoint.clone(), sender })
    }

    /// Connects again, unless another caller has already done so.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn reopen(&self) -> Result<()> {
        if self.sender.borrow().is_closed() {
            let sender = connect(&self.endpoint).await?;
            self.sender.replace(sender);
        }
        Ok(())
    }

    /// Sends the call and drops the response.
    ///
    /// # Errors
    /// The server refuses the call, or the connection is lost.
    pub async fn exchange(&self, call: GrpcCall) -> Result<CallTimes, CallFailure> {
        self.receive(call, |_| {}).await
    }

    /// Sends the call as the only request of a stream. Calls `on_response` for each response with outputs when it
    /// arrives.
    ///
    /// # Errors
    /// As [`GrpcConnection::exchange`]. Also if one of the responses is an error.
    pub async fn stream(
        &self,
        call: GrpcCall,
        mut on_response: impl FnMut(),
    ) -> Result<CallTimes, CallFailure> {
        let mut unread = BytesMut::new();
        let mut refused = None;
        self.receive(call, |piece| {
            unread.extend_from_slice(&piece);
            while let Some(frame) = next_frame(&mut unread) {
                match proto::ModelStreamInferResponse::decode(frame.slice(FRAME_HEAD..)) {
                    Ok(answer) if !answer.error_message.is_empty() => refused = Some(answer.error_message),
                    // The last message may contain only the final flag.
                    Ok(answer)
                        if answer
                            .infer_response
                            .as_ref()
                            .is_some_and(|response| !response.outputs.is_empty()) =>
                    {
                        on_response();
                    }
                    Ok(_) => {}
                    Err(error) => refused = Some(error.to_string()),
                }
            }
        })
        .await?;
        refused.map_or(Ok(CallTimes::default()), |text| Err(CallFailure::Refused(text)))
    }

    /// Sends one message and returns the response.
    ///
    /// # Errors
    /// The connection failed or the status is not OK.
    pub async fn fetch<A: Message + Default>(&self, method: &str, message: &impl Message) -> Result<A> {
        let call = GrpcCall::new(&self.endpoint, method, grpc_message(message))?;
        let answer = self.message(call).await.map(|(answer, _)| answer);
        let answer = answer.map_err(|failure| anyhow!("{method}: {}", failure.into_text()))?;
        A::decode(answer).with_context(|| format!("{method}: the answer is not the expected message"))
    }

    /// Sends the call and returns the message of the response.
    ///
    /// # Errors
    /// As [`GrpcConnection::exchange`].
    pub async fn message(&self, call: GrpcCall) -> Result<(Bytes, CallTimes), CallFailure> {
        let mut answer = BytesMut::new();
        let times = self.receive(call, |piece| answer.extend_from_slice(&piece)).await?;
        answer.advance(FRAME_HEAD.min(answer.len()));
        Ok((answer.freeze(), times))
    }

    async fn receive(&self, call: GrpcCall, mut keep: impl FnMut(Bytes)) -> Result<CallTimes, CallFailure> {
        let broken = |error: hyper::Error| CallFailure::Broken(format!("{:#}", anyhow::Error::new(error)));
        let mut sender = self.sender.borrow().clone();
        sender.ready().await.map_err(broken)?;
        let (head, mut body) = sender.send_request(call.into_request()).await.map_err(broken)?.into_parts();
        if head.status != 200 {
            return Err(CallFailure::Refused(format!("HTTP status {}", head.status)));
        }
        let answered = Instant::now();
        let mut received = 0;
        let mut trailers = None;
        while let Some(frame) = Incoming::frame(&mut body).await {
            match frame.map_err(broken)?.into_data() {
                Ok(piece) => {
                    received += piece.len();
                    keep(piece);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        // A response without a message has its status in the head.
        check_status(trailers.as_ref().unwrap_or(&head.headers))?;
        match received {
            0..5 => Err(CallFailure::Refused("status OK without a message".into())),
            _ => Ok(CallTimes { send: Duration::ZERO, receive: answered.elapsed() }),
        }
    }
}

async fn connect(endpoint: &ServerEndpoint) -> Result<SendRequest<Full<Bytes>>> {
    let stream = endpoint.connect().await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_SIZE)
        .handshake(TokioIo::new(stream))
        .await
        .with_context(|| format!("no HTTP/2 with {}", endpoint.address))?;
    // The task ends with the last sender. The calls on the connection report its errors.
    tokio::spawn(connection);
    Ok(sender)
}

fn check_status(headers: &HeaderMap) -> Result<(), CallFailure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(code) => {
            let message = percent_encoding::percent_decode_str(text("grpc-message").unwrap_or_default());
            Err(CallFailure::Refused(format!("status {code} {}", message.decode_utf8_lossy())))
        }
        None => Err(CallFailure::Refused("answer without grpc-status".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pairs: &[(&'static str, &str)]) -> Result<(), String> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        check_status(&headers.collect()).map_err(CallFailure::into_text)
    }

    #[test]
    fn only_status_zero_is_success() {
        assert_eq!(status(&[("grpc-status", "0")]), Ok(()));
        assert_eq!(
            status(&[("grpc-status", "5"), ("grpc-message", "no%20model")]),
            Err("status 5 no model".into())
        );
        assert_eq!(status(&[]), Err("answer without grpc-status".into()));
    }
}
