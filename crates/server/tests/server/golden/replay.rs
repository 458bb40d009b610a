//! Sends a recorded request to a running server and compares the response with the recording.
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use bytes::Bytes;
use serde_json::Value;
use testing::{
    golden::{Exchange, HttpRequest, HttpResponse, Message, Record},
    grpc::{self, framed, framed_gzip},
    http, schema,
};
use tokio::runtime::Runtime;

use crate::{
    golden::{judge, scenarios, unrecorded},
    support::Served,
};

const LIVE: &str = "/v2/health/live";

/// The server and its state for all exchanges of one configuration.
pub(crate) struct Stage<'s> {
    pub(crate) served: &'s Served,
    pub(crate) repository: &'s Path,
    pub(crate) runtime: &'s Runtime,
}

/// Replays one exchange.
pub(crate) fn replay(record: &Record, stage: &Stage<'_>) -> Result<(), String> {
    unrecorded::send_before(&record.name, stage)?;
    if let Some(scenario) = scenarios::of(&record.name) {
        return scenario(record, stage);
    }
    match &record.exchange {
        Exchange::Http { request, response } => {
            http_exchange(request, response, &port_of(record, stage)?, stage)
        }
        Exchange::Raw { request, response, closed } => raw(request, response.as_deref(), *closed, stage),
        Exchange::Unary { path, message, metadata, code, details, answer } => {
            let compressed = record.name.ends_with("_gzip");
            let call = unary(path, message, metadata, compressed, stage);
            let (messages, status) = stage.runtime.block_on(call)?;
            ended_with(&status, code, details)?;
            match (answer, &messages[..]) {
                (None, []) => Ok(()),
                (Some(expected), [ours]) => answered(path, expected, ours),
                (expected, ours) => Err(format!("{} messages instead of {expected:?}", ours.len())),
            }
        }
        Exchange::Stream { requests, metadata, responses, code } => {
            let (ours, status) = stage.runtime.block_on(stream(requests, metadata, stage))?;
            ended_with(&status, code, "")?;
            judge::message(&responses.clone().into(), &ours.into())
        }
        Exchange::Told { .. } => Err("only told, not recorded".into()),
    }
}

/// A port that speaks HTTP, and a path that has status 200 there.
pub(crate) struct HttpPort {
    pub(crate) address: SocketAddr,
    health: &'static str,
}

/// The port of an exchange, by its name.
pub(crate) fn port_of(record: &Record, stage: &Stage<'_>) -> Result<HttpPort, String> {
    let served = stage.served;
    let server = served.server.as_ref().ok_or("the server has stopped")?;
    let (address, health) = match record.name.split_once('_') {
        Some(("sm", _)) => (server.sagemaker_address(), "/ping"),
        Some(("vx", _)) => (server.vertex_ai_address(), "/health"),
        _ => (Some(served.http), LIVE),
    };
    let address = address.ok_or("the endpoint is off")?;
    // The endpoints of platforms listen on all addresses.
    let address = if address.ip().is_unspecified() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
    } else {
        address
    };
    Ok(HttpPort { address, health })
}

pub(crate) fn http_exchange(
    request: &HttpRequest,
    expected: &HttpResponse,
    port: &HttpPort,
    stage: &Stage<'_>,
) -> Result<(), String> {
    let mut connection = http::Connection::open(port.address).map_err(error_during("connect"))?;
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.path).into_bytes();
    for (name, value) in &request.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&request.body);
    connection.send(&bytes).map_err(error_during("send"))?;
    let ours = connection.receive(&request.method).map_err(error_during("receive"))?;
    let redirect = request.headers.iter().find(|(name, _)| name == "X-Vertex-Ai-Triton-Redirect");
    let path = redirect.map_or(&request.path, |(_, path)| path);
    judge::http(expected, &ours, path, stage.repository)?;
    if expected.kept_open { still_answers(&mut connection, port.health) } else { closed(&mut connection) }
}

/// Sends a second request on the same socket. Its response shows that client and server agree on the end of the first
/// exchange.
pub(crate) fn still_usable(connection: &mut http::Connection) -> Result<(), String> {
    still_answers(connection, LIVE)
}

fn still_answers(connection: &mut http::Connection, path: &str) -> Result<(), String> {
    let live = connection.ask("GET", path, &[], b"").map_err(error_during("second request"))?;
    if live.status == 200 { Ok(()) } else { Err(format!("second request: {}", live.status_line)) }
}

fn closed(connection: &mut http::Connection) -> Result<(), String> {
    if connection.is_closed_within(http::TIMEOUT) { Ok(()) } else { Err("the connection stays open".into()) }
}

fn raw(request: &str, expected: Option<&str>, closed: bool, stage: &Stage<'_>) -> Result<(), String> {
    let mut connection = http::Connection::open(stage.served.http).map_err(error_during("connect"))?;
    connection.send(request.as_bytes()).map_err(error_during("send"))?;
    match expected {
        None => return Err("what came back was not recorded".into()),
        Some("") => {
            let ours = connection.rest().map_err(error_during("receive"))?;
            if !ours.is_empty() {
                return Err(format!("bytes instead of a silent close: {}", String::from_utf8_lossy(&ours)));
            }
        }
        Some(text) => {
            let ours = connection.receive("GET").map_err(error_during("receive"))?;
            judge::http(&parsed(text), &ours, "", stage.repository)?;
            if closed {
                return self::closed(&mut connection);
            }
        }
    }
    if closed { Ok(()) } else { still_usable(&mut connection) }
}

/// A response that was recorded as text.
fn parsed(text: &str) -> HttpResponse {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    HttpResponse {
        status: status.expect("a recorded response has a status"),
        headers: lines.filter_map(header).collect(),
        body: body.into(),
        kept_open: true,
    }
}

async fn unary(
    path: &str,
    message: &Message,
    metadata: &[(String, String)],
    compressed: bool,
    stage: &Stage<'_>,
) -> Result<(Vec<Bytes>, grpc::Status), String> {
    let connection = grpc::Connection::open(stage.served.grpc).await?;
    let encoded = match message {
        Message::Bytes(bytes) => bytes.clone(),
        Message::Json(json) => schema::encode(&types(path)?.0, json)?,
    };
    let mut metadata = metadata.to_vec();
    if compressed {
        metadata.push(("grpc-encoding".into(), "gzip".into()));
    }
    let message = if compressed { framed_gzip(&encoded) } else { framed(&encoded) };
    connection.unary(path, &metadata, message).await
}

fn answered(path: &str, expected: &Message, ours: &[u8]) -> Result<(), String> {
    match expected {
        Message::Bytes(bytes) if bytes == ours => Ok(()),
        Message::Bytes(bytes) => Err(format!("{ours:?} instead of {bytes:?}")),
        Message::Json(json) => judge::message(json, &schema::decode(&types(path)?.1, ours)?),
    }
}

const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Sends the recorded messages and returns all responses.
async fn stream(
    requests: &[Value],
    metadata: &[(String, String)],
    stage: &Stage<'_>,
) -> Result<(Vec<Value>, grpc::Status), String> {
    let (request, response) = types(STREAM)?;
    let connection = grpc::Connection::open(stage.served.grpc).await?;
    let mut call = connection.call(STREAM, metadata).await?;
    let mut messages = Vec::new();
    for message in requests {
        // The recorded client paused here, so that a response came before it sent the next request.
        if message["sleep"].is_number() {
            messages.push(call.next().await?.ok_or("the stream has ended")?);
        } else {
            call.send(framed(&schema::encode(&request, message)?));
        }
    }
    call.finish();
    let (rest, status) = call.rest().await?;
    messages.extend(rest);
    let decoded: Result<_, _> = messages.iter().map(|message| schema::decode(&response, message)).collect();
    Ok((decoded?, status))
}

/// Begins a stream with these requests and leaves it open.
pub(crate) async fn begin_stream(
    requests: &[Value],
    stage: &Stage<'_>,
) -> Result<(grpc::Connection, grpc::Call), String> {
    let connection = grpc::Connection::open(stage.served.grpc).await?;
    let call = connection.call(STREAM, &[]).await?;
    for message in requests {
        call.send(framed(&schema::encode(&types(STREAM)?.0, message)?));
    }
    Ok((connection, call))
}

fn types(path: &str) -> Result<(String, String), String> {
    schema::method(path).ok_or_else(|| format!("the protocol has no method {path}"))
}

fn ended_with(status: &grpc::Status, code: &str, details: &str) -> Result<(), String> {
    if (status.name(), status.message.as_str()) == (code, details) {
        return Ok(());
    }
    Err(format!("{} '{}' instead of {code} '{details}'", status.name(), status.message))
}

/// Adds the step to an error of a socket.
pub(crate) fn error_during(when: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{when}: {error}")
}
