//! The least that a server of the protocols can do: hyper over HTTP/1 and HTTP/2, and an answer that is already there. The
//! baseline of the benchmark of small requests.
//!
//! `bare_protocols HTTP-PORT GRPC-PORT UPSTREAM-HTTP-PORT UPSTREAM-GRPC-PORT` serves on 127.0.0.1. The first request for a
//! path, and over gRPC for a model, goes to the server at the upstream port. Each later one is read, and gets the same answer.
use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    pin::Pin,
    sync::{Arc, RwLock},
    task::{Context, Poll},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header::CONTENT_LENGTH};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    client, server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

/// An answer as the upstream server has given it.
struct RecordedAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

/// The body of a recorded answer: its bytes, and then its trailers.
struct AnswerBody {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

/// The protocol of a port.
#[derive(Clone, Copy)]
enum Version {
    Http1,
    Http2,
}

/// The answers of one port.
struct Answers {
    version: Version,
    upstream: u16,
    known: RwLock<HashMap<Vec<u8>, Arc<RecordedAnswer>>>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.bytes.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

impl Answers {
    fn new(version: Version, upstream: u16) -> Arc<Self> {
        Arc::new(Self { version, upstream, known: RwLock::default() })
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<AnswerBody>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let key = self.key(parts.uri.path(), &body);
        let known = self.known.read().ok().and_then(|known| known.get(&key).cloned());
        let answer = match known {
            Some(answer) => answer,
            None => {
                let answer = Arc::new(self.ask(Request::from_parts(parts, Full::new(body))).await?);
                // What is not ready yet will have another answer.
                if answer.status == StatusCode::OK
                    && let Ok(mut known) = self.known.write()
                {
                    known.insert(key, answer.clone());
                }
                answer
            }
        };
        let body = Some(answer.body.clone()).filter(|bytes| !bytes.is_empty());
        let mut response = Response::new(AnswerBody { bytes: body, trailers: answer.trailers.clone() });
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers.clone();
        Ok(response)
    }

    /// What tells requests apart: the path, and over gRPC the first field of the message, which is the name of the model.
    fn key(&self, path: &str, body: &Bytes) -> Vec<u8> {
        let mut key = path.as_bytes().to_vec();
        if let (Version::Http2, Some(&length)) = (self.version, body.get(6)) {
            key.extend_from_slice(body.get(7..7 + usize::from(length)).unwrap_or_default());
        }
        key
    }

    /// Asks the upstream server.
    async fn ask(&self, mut request: Request<Full<Bytes>>) -> Result<RecordedAnswer> {
        let address = format!("127.0.0.1:{}", self.upstream);
        let io = TokioIo::new(TcpStream::connect(&address).await?);
        let response = match self.version {
            Version::Http1 => {
                let (mut sender, connection) = client::conn::http1::handshake(io).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
            Version::Http2 => {
                let path = request.uri().path().to_owned();
                *request.uri_mut() =
                    Uri::builder().scheme("http").authority(address).path_and_query(path).build()?;
                let executor = TokioExecutor::new();
                let (mut sender, connection) = client::conn::http2::handshake(executor, io).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let mut headers = parts.headers;
        headers.remove(CONTENT_LENGTH);
        Ok(RecordedAnswer { status: parts.status, headers, body: body.to_bytes(), trailers })
    }
}

async fn serve(port: u16, answers: Arc<Answers>) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = answers.clone();
        tokio::spawn(async move {
            let version = answers.version;
            let service = service_fn(move |request| {
                let answers = answers.clone();
                async move { answers.answer(request).await.map_err(|error| error.to_string()) }
            });
            let io = TokioIo::new(stream);
            // The client ends the connection.
            let _ = match version {
                Version::Http1 => server::conn::http1::Builder::new().serve_connection(io, service).await,
                Version::Http2 => {
                    server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(io, service)
                        .await
                }
            };
        });
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let ports: Vec<u16> = env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [http, grpc, upstream_http, upstream_grpc] = ports[..] else {
        bail!("usage: bare_protocols HTTP-PORT GRPC-PORT UPSTREAM-HTTP-PORT UPSTREAM-GRPC-PORT")
    };
    let over_http = serve(http, Answers::new(Version::Http1, upstream_http));
    let over_grpc = serve(grpc, Answers::new(Version::Http2, upstream_grpc));
    tokio::try_join!(over_http, over_grpc).context("a port cannot be served").map(drop)
}
