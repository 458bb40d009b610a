//! The access log: one entry for each request, with what it was and what became of it, but never its content.
//!
//! The endpoint asks the log at the begin of each request whether it wants an entry. Only then the endpoint collects
//! what an entry needs. The entry is written when the last byte of the answer has been sent, or when the client has
//! gone.
use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use vocabulary::Name;

use super::request_facts::{RequestFacts, RequestTimes};

/// The longest method and path of an entry, in bytes. A client may send names of many kilobytes.
const MAX_METHOD: usize = 256;

/// Takes entries. Must not block: threads of the network call it.
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Whether the request that begins now gets an entry. Called once for each request.
    fn samples(&self) -> bool;

    /// Takes the entry of a request that has ended.
    fn write(&self, entry: AccessEntry);
}

/// What is logged of a request. Headers and tensors are never part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessEntry {
    /// `http` or `grpc`.
    pub protocol: &'static str,
    /// Method and path of an HTTP request, without the query; the name of a gRPC call.
    pub method: String,
    /// The model; empty if the request names none or an unknown one.
    pub model: Name,
    /// The version that the server has chosen.
    pub version: Option<i64>,
    /// The id that the client gave.
    pub request_id: Name,
    /// The status of HTTP, or the code of gRPC. `None` if the client has gone before.
    pub status: Option<u16>,
    /// The bytes of the request's body or message.
    pub request_bytes: u64,
    /// The bytes of the body or of the messages that were sent.
    pub response_bytes: u64,
    /// The times of an inference.
    pub times: RequestTimes,
    /// From the begin of the request until the last byte was sent.
    pub total: Duration,
    /// The address of the client.
    pub peer: Option<SocketAddr>,
}

/// An entry of a request that has not ended. Dropping it writes it.
#[derive(Debug)]
pub(crate) struct AccessLine {
    log: Arc<dyn AccessLog>,
    facts: Arc<RequestFacts>,
    protocol: &'static str,
    method: String,
    begun: Instant,
    request_bytes: u64,
    response_bytes: u64,
    status: Option<u16>,
    peer: Option<SocketAddr>,
}

impl AccessLine {
    /// Begins an entry, if the log wants one. `method` makes the method.
    pub(crate) fn begin(
        log: Option<&Arc<dyn AccessLog>>,
        protocol: &'static str,
        peer: Option<SocketAddr>,
        method: impl FnOnce() -> String,
    ) -> Option<Box<Self>> {
        let log = log.filter(|log| log.samples())?.clone();
        let mut method = method();
        method.truncate(method.floor_char_boundary(MAX_METHOD));
        Some(Box::new(Self {
            log,
            facts: Arc::default(),
            protocol,
            method,
            begun: Instant::now(),
            request_bytes: 0,
            response_bytes: 0,
            status: None,
            peer,
        }))
    }

    /// What the handler of the request tells about it.
    pub(crate) fn facts(&self) -> &Arc<RequestFacts> {
        &self.facts
    }

    /// The request has so many bytes.
    pub(crate) fn set_request_bytes(&mut self, bytes: u64) {
        self.request_bytes = bytes;
    }

    /// The client gets this status.
    pub(crate) fn set_status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// One of several responses has this status. The first error is the status of the request.
    pub(crate) fn add_status(&mut self, status: u16) {
        if self.status.is_none_or(|known| known == 0) {
            self.status = Some(status);
        }
    }

    /// Bytes of the answer are sent.
    pub(crate) fn add_response_bytes(&mut self, bytes: u64) {
        self.response_bytes += bytes;
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let facts = self.facts.read();
        self.log.write(AccessEntry {
            protocol: self.protocol,
            method: std::mem::take(&mut self.method),
            model: facts.model,
            version: facts.version,
            request_id: facts.request_id,
            status: self.status,
            request_bytes: facts.request_bytes.unwrap_or(self.request_bytes),
            response_bytes: self.response_bytes,
            times: facts.times,
            total: self.begun.elapsed(),
            peer: self.peer,
        });
    }
}
