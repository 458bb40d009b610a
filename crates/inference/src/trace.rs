//! The trace of one request. It receives each time of the request when it happens.
use std::{
    any::Any,
    fmt,
    sync::{Arc, Weak},
};

use scheduling::Timestamp;

use crate::Name;

/// The steps of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceActivity {
    /// The server has accepted the request from its caller.
    RequestStart,
    /// The request has reached its queue.
    QueueStart,
    /// The execution has started.
    ComputeStart,
    /// The inputs are ready.
    ComputeInputEnd,
    /// The outputs are computed.
    ComputeOutputStart,
    /// The execution has ended for this request.
    ComputeEnd,
    /// The request has ended.
    RequestEnd,
}

/// Receives the times of one request. Activities arrive in the order of [`TraceActivity`], each at most once. The
/// threads that work on the request call the sink, so it must not block.
pub trait TraceSink: Any + Send + Sync {
    /// The request has reached this step, at a time of the clock of all [`Timestamp`]s.
    fn reached(&self, activity: TraceActivity, at: Timestamp);

    /// A trace for a request that the server sends to this version of a model while it works on the traced request.
    /// `None`: such requests are not traced.
    fn child(&self, model: &Name, version: i64, request_id: &Name) -> Option<Arc<dyn TraceSink>> {
        let _ = (model, version, request_id);
        None
    }
}

/// The trace of a request. It is part of the request: from the protocol that decided to trace it, through the engine,
/// to a backend that traces its own work.
#[derive(Clone)]
pub struct TraceContext {
    sink: Arc<dyn TraceSink>,
}

impl TraceContext {
    /// A trace that reports to `sink`.
    pub fn new(sink: Arc<dyn TraceSink>) -> Self {
        Self { sink }
    }

    /// The sink, for the protocol or plug-in interface that knows its type.
    pub fn sink<S: TraceSink>(&self) -> Option<&S> {
        let sink: &dyn Any = &*self.sink;
        sink.downcast_ref()
    }

    /// A weak reference to the sink. A request releases its trace when it ends.
    pub(crate) fn downgrade(&self) -> Weak<dyn TraceSink> {
        Arc::downgrade(&self.sink)
    }

    /// The trace of a request that the server sends to a model while it works on the traced request.
    pub fn child(&self, model: &Name, version: i64, request_id: &Name) -> Option<Self> {
        self.sink.child(model, version, request_id).map(Self::new)
    }

    pub(crate) fn tell(&self, activity: TraceActivity, at: Timestamp) {
        self.sink.reached(activity, at);
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext").finish_non_exhaustive()
    }
}
