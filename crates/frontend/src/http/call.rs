//! One request of a client, as its handlers see it.
use std::sync::Arc;

use bytes::Bytes;
use engine::Model;
use host::now;
use http::{HeaderMap, Method, Uri, request::Parts};
use http_body::Body;
use trace::{FrontendActivity, RequestTrace, Tracer};

use super::header_case::WrittenHead;
use crate::{
    access::{Access, ApiKeys, RequestFacts},
    tracing,
};

/// The body of a request, from which its handler reads.
pub type IncomingBody = dyn Body<Data = Bytes, Error = hyper::Error> + Send + Unpin;

/// A request, and what is known of it until its reply is ready.
pub struct HttpCall<'c> {
    pub(crate) method: &'c mut Method,
    pub(crate) uri: &'c Uri,
    pub(crate) headers: &'c mut HeaderMap,
    pub(super) body: &'c mut IncomingBody,
    /// The head as the client wrote it, if the server forwards headers.
    pub(super) written_head: Option<WrittenHead>,
    /// What the sender may use.
    pub(super) access: Access,
    /// What the handler learns of the request, if somebody wants to know it.
    pub(super) facts: Option<Arc<RequestFacts>>,
    /// The trace of the request, once it is sampled.
    pub(super) trace: Option<RequestTrace>,
}

impl<'c> HttpCall<'c> {
    /// A request with this head and this body. The sender may use what `keys` permit; without keys, everything.
    pub fn new(head: &'c mut Parts, body: &'c mut IncomingBody, keys: Option<&Arc<ApiKeys>>) -> Self {
        let access = Access::of(keys, &head.headers);
        let Parts { method, uri, headers, .. } = head;
        Self { method, uri, headers, body, written_head: None, access, facts: None, trace: None }
    }

    /// Tells what is known of the request, if somebody wants to know it.
    pub(super) fn note(&self, note: impl FnOnce(&RequestFacts)) {
        if let Some(facts) = &self.facts {
            note(facts);
        }
    }

    /// The head of a request for `model` is there: the request gets a trace if it is sampled.
    pub(super) fn sample(&mut self, tracer: &Tracer, model: &Model) {
        if !tracer.is_on() {
            return;
        }
        let at = now();
        self.trace = tracer.sample(model.name(), at, || tracing::remote_context(self.headers));
        if let Some(trace) = &self.trace {
            trace.reached(FrontendActivity::HttpReceiveStart, at);
        }
    }

    /// The body of the request is there.
    pub(super) fn note_received(&self) {
        if let Some(trace) = &self.trace {
            trace.reached(FrontendActivity::HttpReceiveEnd, now());
        }
    }
}
