//! Who follows one request, and is told each of its times as it happens.
use std::{
    any::Any,
    fmt,
    sync::{Arc, Weak},
};

use scheduling::Timestamp;

/// What a request has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceActivity {
    /// The server has accepted it from its caller.
    RequestStart,
    /// It has come to its queue.
    QueueStart,
    /// Its execution has begun.
    ComputeStart,
    /// Its inputs are in place.
    ComputeInputEnd,
    /// Its outputs are computed.
    ComputeOutputStart,
    /// Its execution has ended for it.
    ComputeEnd,
    /// It has ended.
    RequestEnd,
}

/// Is told the times of one request. Activities come in the order of [`TraceActivity`], each at most once, from the threads
/// that work on the request, and must not block.
pub trait TraceSink: Any + Send + Sync {
    /// The request has reached that point, by the clock of all [`Timestamp`]s.
    fn reached(&self, activity: TraceActivity, at: Timestamp);
}

/// The trace of a request. It travels with the request: from the protocol that decided to trace it, through the engine, to
/// a backend that traces what it does itself.
#[derive(Clone)]
pub struct TraceContext {
    sink: Arc<dyn TraceSink>,
}

impl TraceContext {
    /// A trace that is told to `sink`.
    pub fn new(sink: Arc<dyn TraceSink>) -> Self {
        Self { sink }
    }

    /// The sink, for the protocol or plug-in interface that knows its type.
    pub fn sink<S: TraceSink>(&self) -> Option<&S> {
        let sink: &dyn Any = &*self.sink;
        sink.downcast_ref()
    }

    /// The sink without keeping it: a request gives its trace back when it ends.
    pub(crate) fn downgrade(&self) -> Weak<dyn TraceSink> {
        Arc::downgrade(&self.sink)
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
