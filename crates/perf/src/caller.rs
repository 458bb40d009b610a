//! A caller: a connection or a share of one, and the requests that it sends one after the other.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use client::call_outcome::{CallFailure, CallTimes};
use client::endpoint::ServerEndpoint;
use client::grpc::{GrpcCall, GrpcConnection};
use client::http::HttpConnection;
use http::HeaderName;
use tokio::time::timeout;

use crate::chain::{self, ChainedModel};
use crate::feed::{CallerFeed, NextRequest, SharedFeed};
use crate::options::{PerfOptions, Protocol};
use crate::payload::{GenerateTemplate, GrpcTemplate, HttpTemplate};
use crate::tensors::{InputTensor, WantedOutput};

/// The prepared requests of a run, shared by all callers.
pub(crate) struct Prepared {
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) requests: PreparedRequests,
    pub(crate) chain: Vec<ChainedModel>,
    /// For each request, the outputs that are compared. Empty if none are.
    pub(crate) expected: Vec<Vec<WantedOutput>>,
}

/// A request that is prepared in parts, and as a whole for use outside of sequences.
pub(crate) enum PreparedRequests {
    Http(Vec<(HttpTemplate, Bytes)>),
    /// The response of each is a stream of events.
    Generate(Vec<(GenerateTemplate, Bytes)>),
    Grpc {
        requests: Vec<(GrpcTemplate, Bytes)>,
        call: Box<GrpcCall>,
        streaming: bool,
        sequence_header: Option<HeaderName>,
    },
}

/// Sends one request after the other. Reopens its connection when necessary.
pub(crate) struct Caller {
    prepared: Rc<Prepared>,
    connection: CallerConnection,
    feed: CallerFeed,
}

enum CallerConnection {
    Http(Option<HttpConnection>),
    Grpc(Rc<GrpcConnection>),
}

/// A request that has a valid response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredCall {
    pub(crate) times: CallTimes,
    /// The request was the last one of a sequence.
    pub(crate) ends_sequence: bool,
    pub(crate) sequence_id: Option<u64>,
}

/// How long a caller waits for the response that ends its sequence after a point.
const FAREWELL: Duration = Duration::from_secs(2);

impl Caller {
    /// Sends the next request and waits for the whole response. Calls `on_response` for each response of a stream when
    /// it arrives.
    ///
    /// # Errors
    /// The text under which the failure is counted.
    pub(crate) async fn call(&mut self, on_response: impl FnMut()) -> Result<AnsweredCall, String> {
        let next = self.feed.next();
        let answer = self.send(next, on_response).await;
        if answer.is_err() {
            self.feed.abandon();
        }
        let times = answer?;
        let position = next.position;
        let ends_sequence = position.is_some_and(|position| position.end);
        Ok(AnsweredCall { times, ends_sequence, sequence_id: position.map(|position| position.id) })
    }

    /// Ends the open sequence, so that the server need not wait for its other requests.
    pub(crate) async fn end_sequence(&mut self) {
        if let Some(last) = self.feed.last() {
            // If this fails, the server ends the sequence when it was idle for long enough.
            let _ = timeout(FAREWELL, self.send(last, || {})).await;
        }
    }

    async fn send(&mut self, next: NextRequest, on_response: impl FnMut()) -> Result<CallTimes, String> {
        let NextRequest { index, position } = next;
        let Prepared { endpoint, requests, chain, expected } = &*self.prepared;
        let expected = expected.get(index).map_or(&[][..], Vec::as_slice);
        match (requests, &mut self.connection) {
            (PreparedRequests::Http(requests), CallerConnection::Http(connection)) => {
                let (template, whole) = &requests[index];
                let request = position.map_or_else(|| whole.clone(), |at| template.request(Some(&at)));
                let mut open = taken(connection, endpoint).await?;
                let answer = exchange_http(&mut open, request, chain, expected).await;
                put_back(connection, open, answer)
            }
            (PreparedRequests::Generate(requests), CallerConnection::Http(connection)) => {
                let (template, whole) = &requests[index];
                let request = position.map_or_else(|| whole.clone(), |at| template.request(Some(&at)));
                let mut open = taken(connection, endpoint).await?;
                let answer = open.stream(&request, on_response).await;
                put_back(connection, open, answer)
            }
            (
                PreparedRequests::Grpc { requests, call, streaming, sequence_header },
                CallerConnection::Grpc(connection),
            ) => {
                let (template, whole) = &requests[index];
                let request = position.map_or_else(|| whole.clone(), |at| template.request(Some(&at)));
                reopened(connection.reopen().await).await?;
                let mut call = call.with_message(request);
                if let Some((name, at)) = sequence_header.as_ref().zip(position) {
                    call = call.with_metadata(name.clone(), at.id);
                }
                let answer = match streaming {
                    true => connection.stream(call, on_response).await,
                    false => exchange_grpc(connection, call, chain, expected).await,
                };
                answer.map_err(CallFailure::into_text)
            }
            _ => unreachable!("a caller has a connection of the protocol of its requests"),
        }
    }
}

/// Takes the connection, so that it is lost if the call does not end. Opens another one if there is none.
async fn taken(
    connection: &mut Option<HttpConnection>,
    endpoint: &ServerEndpoint,
) -> Result<HttpConnection, String> {
    match connection.take() {
        Some(open) => Ok(open),
        None => reopened(HttpConnection::open(endpoint).await).await,
    }
}

/// Keeps the connection for the next call, if it still works. The answer also tells whether the server closes it.
fn put_back(
    connection: &mut Option<HttpConnection>,
    open: HttpConnection,
    answer: Result<(CallTimes, bool), CallFailure>,
) -> Result<CallTimes, String> {
    match answer {
        Ok((_, true)) | Err(CallFailure::Broken(_)) => {}
        Ok((_, false)) | Err(CallFailure::Refused(_)) => *connection = Some(open),
    }
    answer.map(|(times, _)| times).map_err(CallFailure::into_text)
}

/// Sends the request, and the outputs of each response to the next model. Also tells whether the server closes the
/// connection.
async fn exchange_http(
    connection: &mut HttpConnection,
    mut request: Bytes,
    chain: &[ChainedModel],
    expected: &[WantedOutput],
) -> Result<(CallTimes, bool), CallFailure> {
    for next in chain {
        let answer = connection.receive(&request).await?;
        request = next.http_request(&answer).map_err(|error| refused(&error))?;
    }
    if expected.is_empty() {
        return connection.exchange(&request).await;
    }
    let answer = connection.receive(&request).await?;
    let times = answer.times;
    let outputs = chain::http_outputs(&answer).map_err(|error| refused(&error))?;
    compare(expected, &outputs)?;
    Ok((times, false))
}

/// As [`exchange_http`], over gRPC.
async fn exchange_grpc(
    connection: &GrpcConnection,
    mut call: GrpcCall,
    chain: &[ChainedModel],
    expected: &[WantedOutput],
) -> Result<CallTimes, CallFailure> {
    for next in chain {
        let (answer, _) = connection.message(call).await?;
        call = next.grpc_call(answer).map_err(|error| refused(&error))?;
    }
    if expected.is_empty() {
        return connection.exchange(call).await;
    }
    let (answer, times) = connection.message(call).await?;
    let outputs = chain::grpc_outputs(answer).map_err(|error| refused(&error))?;
    compare(expected, &outputs)?;
    Ok(times)
}

/// Compares the outputs of a response with those of `validation_data`.
fn compare(expected: &[WantedOutput], outputs: &[InputTensor]) -> Result<(), CallFailure> {
    for WantedOutput { name, bytes } in expected {
        match outputs.iter().find(|output| output.input.name == *name) {
            Some(output) if output.bytes == bytes => {}
            Some(_) => {
                return Err(CallFailure::Refused(format!(
                    "output '{name}' differs from the validation data"
                )));
            }
            None => return Err(CallFailure::Refused(format!("output '{name}' is missing in the response"))),
        }
    }
    Ok(())
}

fn refused(error: &anyhow::Error) -> CallFailure {
    CallFailure::Refused(format!("{error:#}"))
}

/// If the server is not reachable, this pause keeps a closed loop from counting errors as fast as it can.
const PAUSE: Duration = Duration::from_millis(10);

async fn reopened<T>(result: Result<T>) -> Result<T, String> {
    if result.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    result.map_err(|error| format!("{error:#}"))
}

/// Opens this many callers, each with its connection.
///
/// # Errors
/// The server is not reachable.
pub(crate) async fn open(
    count: usize,
    prepared: &Rc<Prepared>,
    feed: &Rc<SharedFeed>,
    options: &PerfOptions,
) -> Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    let mut shared = Vec::new();
    for index in 0..count {
        let connection = match prepared.requests {
            PreparedRequests::Http(_) | PreparedRequests::Generate(_) => {
                CallerConnection::Http(Some(HttpConnection::open(&prepared.endpoint).await?))
            }
            PreparedRequests::Grpc { .. } => {
                let connections = connection_count(options, count);
                if shared.len() < connections {
                    shared.push(Rc::new(GrpcConnection::open(&prepared.endpoint).await?));
                }
                CallerConnection::Grpc(shared[index % connections].clone())
            }
        };
        let (prepared, feed) = (prepared.clone(), CallerFeed::new(feed.clone()));
        callers.push(Caller { prepared, connection, feed });
    }
    Ok(callers)
}

/// Callers share HTTP/2 connections, as in client libraries: a few connections with many streams.
const MOST_GRPC_CONNECTIONS: usize = 8;

/// The number of connections for this many callers.
pub(crate) fn connection_count(options: &PerfOptions, callers: usize) -> usize {
    match options.protocol {
        Protocol::HttpJson | Protocol::HttpBinary => callers,
        Protocol::Grpc => options.connections.unwrap_or(MOST_GRPC_CONNECTIONS).min(callers),
    }
}
