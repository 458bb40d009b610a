//! One caller: a connection, or a share of one, and the request it repeats.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use crate::grpc::{GrpcCall, GrpcConnection};
use crate::http::HttpConnection;
use crate::options::{Options, Protocol};

/// Why a request has no good answer.
pub(crate) enum Failure {
    /// The server said no; the connection is fine.
    Refused(String),
    /// The connection is gone, or not to be trusted.
    Broken(String),
    /// The answer was good, but the server closes the connection after it.
    Closed,
}

impl Failure {
    pub(crate) fn into_text(self) -> String {
        match self {
            Failure::Refused(text) | Failure::Broken(text) => text,
            Failure::Closed => "the server closes its connections".into(),
        }
    }
}

/// The prepared request, shared by all callers.
#[derive(Clone)]
pub(crate) enum Prepared {
    Http { address: Rc<str>, request: Bytes },
    Grpc(Rc<GrpcCall>),
}

/// Sends one request after the other. Reopens its connection when needed.
pub(crate) enum Caller {
    Http { address: Rc<str>, request: Bytes, connection: Option<HttpConnection> },
    Grpc { call: Rc<GrpcCall>, connection: Rc<GrpcConnection> },
}

impl Caller {
    /// Sends the request and waits for the whole answer.
    ///
    /// # Errors
    /// The text to count the failure under.
    pub(crate) async fn call(&mut self) -> Result<(), String> {
        match self {
            Caller::Http { address, request, connection } => {
                let mut open = match connection.take() {
                    Some(open) => open,
                    None => reopened(HttpConnection::open(address).await).await?,
                };
                match open.exchange(request).await {
                    Ok(()) => *connection = Some(open),
                    Err(Failure::Closed) => {}
                    Err(Failure::Refused(text)) => {
                        *connection = Some(open);
                        return Err(text);
                    }
                    Err(Failure::Broken(text)) => return Err(text),
                }
                Ok(())
            }
            Caller::Grpc { call, connection } => {
                reopened(connection.reopen().await).await?;
                connection.exchange(call).await.map_err(Failure::into_text)
            }
        }
    }
}

/// Without a pause a closed loop against a server that is gone would count errors as fast as it can.
const PAUSE: Duration = Duration::from_millis(10);

async fn reopened<T>(result: Result<T>) -> Result<T, String> {
    if result.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    result.map_err(|error| format!("{error:#}"))
}

/// So many callers, each with its connection open.
///
/// # Errors
/// The server cannot be reached.
pub(crate) async fn open(count: usize, prepared: &Prepared, options: &Options) -> Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    match prepared {
        Prepared::Http { address, request } => {
            for _ in 0..count {
                let connection = Some(HttpConnection::open(address).await?);
                callers.push(Caller::Http { address: address.clone(), request: request.clone(), connection });
            }
        }
        Prepared::Grpc(call) => {
            let mut connections = Vec::new();
            for _ in 0..connection_count(options, count) {
                connections.push(Rc::new(GrpcConnection::open(&options.address).await?));
            }
            for connection in connections.iter().cycle().take(count) {
                callers.push(Caller::Grpc { call: call.clone(), connection: connection.clone() });
            }
        }
    }
    Ok(callers)
}

/// Callers share HTTP/2 connections as client libraries do: a few connections with many streams.
const MOST_GRPC_CONNECTIONS: usize = 8;

/// How many connections so many callers use.
pub(crate) fn connection_count(options: &Options, callers: usize) -> usize {
    match options.protocol {
        Protocol::HttpJson | Protocol::HttpBinary => callers,
        Protocol::Grpc => options.connections.unwrap_or(MOST_GRPC_CONNECTIONS).min(callers),
    }
}
