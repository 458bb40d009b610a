//! What both protocols tell the trace of a request.
use host::now;
use http::{HeaderMap, HeaderValue};
use inference::Timestamp;
use trace::{FrontendActivity, RemoteContext, RequestTrace, Tracer};

/// What the headers of a request say about the trace of its client.
pub(crate) fn remote_context(headers: &HeaderMap) -> Option<RemoteContext> {
    let parent = headers.get(RemoteContext::PARENT_HEADER)?;
    let state = headers.get(RemoteContext::STATE_HEADER).map(HeaderValue::as_bytes);
    RemoteContext::parse(parent.as_bytes(), state)
}

/// When the server began to wait for a gRPC message, and when it had the message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageTimes {
    pub(crate) waiting: Timestamp,
    pub(crate) arrived: Timestamp,
}

impl MessageTimes {
    /// The trace of the message, if it is sampled.
    pub(crate) fn sample(self, tracer: &Tracer, model: &str, headers: &HeaderMap) -> Option<RequestTrace> {
        let trace = tracer.sample(model, self.arrived, || remote_context(headers))?;
        trace.reached(FrontendActivity::GrpcReceiveStart, self.waiting);
        trace.reached(FrontendActivity::GrpcReceiveEnd, self.arrived);
        Some(trace)
    }
}

/// A response of a traced request on its way to the connection. Dropping it tells the trace that the connection has
/// taken the response.
#[derive(Debug)]
pub(crate) struct TracedSend {
    trace: RequestTrace,
    end: FrontendActivity,
}

impl TracedSend {
    /// A response over HTTP begins to be sent.
    pub(crate) fn http(trace: RequestTrace) -> Self {
        trace.reached(FrontendActivity::HttpSendStart, now());
        Self { trace, end: FrontendActivity::HttpSendEnd }
    }

    /// A message over gRPC begins to be sent.
    pub(crate) fn grpc(trace: RequestTrace) -> Self {
        trace.reached(FrontendActivity::GrpcSendStart, now());
        Self { trace, end: FrontendActivity::GrpcSendEnd }
    }
}

impl Drop for TracedSend {
    fn drop(&mut self) {
        self.trace.reached(self.end, now());
    }
}

/// The frontend has got a response from the model.
pub(crate) fn response_complete(trace: Option<&RequestTrace>) {
    if let Some(trace) = trace {
        trace.reached(FrontendActivity::ResponseComplete, now());
    }
}
