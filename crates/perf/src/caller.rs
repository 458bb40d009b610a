//! A caller: a connection or a share of one, and the request that it repeats.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use crate::call_failure::CallFailure;
use crate::chain::ChainedModel;
use crate::endpoint::ServerEndpoint;
use crate::grpc::{GrpcCall, GrpcConnection};
use crate::http::HttpConnection;
use crate::options::{PerfOptions, Protocol};

/// The prepared requests, shared by all callers.
pub(crate) enum Prepared {
    Http { endpoint: ServerEndpoint, requests: Turns<Bytes>, chain: Rc<[ChainedModel]> },
    Grpc { endpoint: ServerEndpoint, calls: Turns<GrpcCall>, streaming: bool, chain: Rc<[ChainedModel]> },
}

/// A list whose elements the callers take in turn. Clones share the position. Never empty.
pub(crate) struct Turns<T>(Rc<(Vec<T>, Cell<usize>)>);

impl<T> Turns<T> {
    /// Gives the elements in this order, repeatedly.
    ///
    /// # Errors
    /// The first error among the elements.
    pub(crate) fn of(all: impl Iterator<Item = Result<T>>) -> Result<Turns<T>> {
        let all: Vec<T> = all.collect::<Result<_>>()?;
        debug_assert!(!all.is_empty(), "there is at least one request");
        Ok(Turns(Rc::new((all, Cell::new(0)))))
    }

    fn next(&self) -> &T {
        let (all, turn) = &*self.0;
        let index = turn.get();
        turn.set((index + 1) % all.len());
        &all[index]
    }
}

impl<T> Clone for Turns<T> {
    fn clone(&self) -> Self {
        Turns(self.0.clone())
    }
}

/// Sends one request after the other. Reopens its connection when necessary.
pub(crate) enum Caller {
    Http {
        endpoint: ServerEndpoint,
        requests: Turns<Bytes>,
        chain: Rc<[ChainedModel]>,
        connection: Option<HttpConnection>,
    },
    Grpc {
        calls: Turns<GrpcCall>,
        streaming: bool,
        chain: Rc<[ChainedModel]>,
        connection: Rc<GrpcConnection>,
    },
}

impl Caller {
    /// Sends the next request and waits for the whole response. Calls `on_response` for each response of a stream when
    /// it arrives.
    ///
    /// # Errors
    /// The text under which the failure is counted.
    pub(crate) async fn call(&mut self, on_response: impl FnMut()) -> Result<(), String> {
        match self {
            Caller::Http { endpoint, requests, chain, connection } => {
                let mut open = match connection.take() {
                    Some(open) => open,
                    None => reopened(HttpConnection::open(endpoint).await).await?,
                };
                match exchange_http(&mut open, requests.next().clone(), chain).await {
                    Ok(()) => *connection = Some(open),
                    Err(CallFailure::Closed) => {}
                    Err(CallFailure::Refused(text)) => {
                        *connection = Some(open);
                        return Err(text);
                    }
                    Err(CallFailure::Broken(text)) => return Err(text),
                }
                Ok(())
            }
            Caller::Grpc { calls, streaming, chain, connection } => {
                reopened(connection.reopen().await).await?;
                let answer = match streaming {
                    true => connection.stream(calls.next(), on_response).await,
                    false => exchange_grpc(connection, calls.next(), chain).await,
                };
                answer.map_err(CallFailure::into_text)
            }
        }
    }
}

/// Sends the request, and the outputs of each response to the next model.
async fn exchange_http(
    connection: &mut HttpConnection,
    mut request: Bytes,
    chain: &[ChainedModel],
) -> Result<(), CallFailure> {
    for next in chain {
        let answer = connection.receive(&request).await?;
        request = next.http_request(&answer).map_err(|error| refused(&error))?;
    }
    connection.exchange(&request).await
}

/// As [`exchange_http`], over gRPC.
async fn exchange_grpc(
    connection: &GrpcConnection,
    first: &GrpcCall,
    chain: &[ChainedModel],
) -> Result<(), CallFailure> {
    let mut further = None;
    for next in chain {
        let answer = connection.message(further.as_ref().unwrap_or(first)).await?;
        further = Some(next.grpc_call(answer).map_err(|error| refused(&error))?);
    }
    connection.exchange(further.as_ref().unwrap_or(first)).await
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
pub(crate) async fn open(count: usize, prepared: &Prepared, options: &PerfOptions) -> Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    match prepared {
        Prepared::Http { endpoint, requests, chain } => {
            for _ in 0..count {
                let connection = Some(HttpConnection::open(endpoint).await?);
                let (endpoint, requests, chain) = (endpoint.clone(), requests.clone(), chain.clone());
                callers.push(Caller::Http { endpoint, requests, chain, connection });
            }
        }
        Prepared::Grpc { endpoint, calls, streaming, chain } => {
            let mut connections = Vec::new();
            for _ in 0..connection_count(options, count) {
                connections.push(Rc::new(GrpcConnection::open(endpoint).await?));
            }
            for connection in connections.iter().cycle().take(count) {
                let (calls, chain, connection) = (calls.clone(), chain.clone(), connection.clone());
                callers.push(Caller::Grpc { calls, streaming: *streaming, chain, connection });
            }
        }
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
