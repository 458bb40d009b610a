//! The trace of one request. It receives each time of the request when it happens.
use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use scheduling::Timestamp;
use vocabulary::{Name, Tensor};

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

/// Where a traced tensor is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorActivity {
    /// An input as it enters the queue.
    QueueInput,
    /// An output as the backend has sent it.
    BackendOutput,
}

/// The numbers by which a trace and its parent are known. They are unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIdentity {
    /// From 1.
    pub id: u64,
    /// 0 for a trace without a parent.
    pub parent_id: u64,
}

impl TraceIdentity {
    /// A new number.
    pub fn unique(parent_id: u64) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT_ID.fetch_add(1, Relaxed), parent_id }
    }
}

/// The id of a trace that other programs know, too (W3C Trace Context).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// The id with these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The 32 hexadecimal digits of a `traceparent`.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Receives the times of one request. Activities arrive in the order of [`TraceActivity`], each at most once. The
/// threads that work on the request call the sink, so it must not block.
pub trait TraceSink: Any + Send + Sync {
    /// The request has reached this step, at a time of the clock of all [`Timestamp`]s.
    fn reached(&self, activity: TraceActivity, at: Timestamp);

    /// This version of a model has accepted the request. Called before the first time.
    fn accepted(&self, model: &Name, version: i64, request_id: &Name) {
        let _ = (model, version, request_id);
    }

    /// A batch of this number of rows contains the request. Called before its computation starts.
    fn batched(&self, rows: u32) {
        let _ = rows;
    }

    /// Whether the sink receives tensors.
    fn wants_tensors(&self) -> bool {
        false
    }

    /// A tensor of the request. Called only if the sink wants tensors. The memory may be foreign, or that of a device.
    fn tensor(&self, activity: TensorActivity, tensor: &Tensor) {
        let _ = (activity, tensor);
    }

    /// A backend reports an activity with a name of its own.
    fn custom(&self, name: &str, at: Timestamp) {
        let _ = (name, at);
    }

    /// The numbers of the trace.
    fn identity(&self) -> TraceIdentity;

    /// What a backend passes on to others, so that their traces belong to this one: an object in JSON.
    fn propagated(&self) -> Option<String> {
        None
    }

    /// A trace for a request that the server or a backend sends to a model while it works on the traced request.
    /// `None`: such requests are not traced.
    fn child(self: Arc<Self>) -> Option<Arc<dyn TraceSink>> {
        None
    }

    /// The id of the trace, if other programs know it.
    fn trace_id(&self) -> Option<TraceId> {
        None
    }
}

/// The trace of a request. It is part of the request: from the protocol that decided to trace it, through the engine,
/// to a backend that traces its own work.
#[derive(Clone)]
pub struct TraceContext {
    sink: Arc<dyn TraceSink>,
    told: ToldActivities,
}

/// The activities that a trace has been told, a bit for each. Several threads may know the same one.
#[derive(Debug, Clone, Default)]
struct ToldActivities(Arc<AtomicU8>);

impl ToldActivities {
    /// Whether this call is the first with that activity.
    fn is_first(&self, activity: TraceActivity) -> bool {
        let bit = 1 << activity as u8;
        self.0.fetch_or(bit, Relaxed) & bit == 0
    }
}

/// A reference to the trace of a request that does not keep the trace from ending.
pub(crate) struct WeakTraceContext {
    sink: Weak<dyn TraceSink>,
    told: ToldActivities,
}

impl WeakTraceContext {
    pub(crate) fn upgrade(&self) -> Option<TraceContext> {
        Some(TraceContext { sink: self.sink.upgrade()?, told: self.told.clone() })
    }
}

impl TraceContext {
    /// A trace that reports to `sink`.
    pub fn new(sink: Arc<dyn TraceSink>) -> Self {
        Self { sink, told: ToldActivities::default() }
    }

    /// The sink, for the protocol or plug-in interface that knows its type.
    pub fn sink<S: TraceSink>(&self) -> Option<&S> {
        let sink: &dyn Any = &*self.sink;
        sink.downcast_ref()
    }

    /// A weak reference to the sink. A request releases its trace when it ends.
    pub(crate) fn downgrade(&self) -> WeakTraceContext {
        WeakTraceContext { sink: Arc::downgrade(&self.sink), told: self.told.clone() }
    }

    /// The trace of a request that is sent to a model while the traced request is worked on.
    pub fn child(&self) -> Option<Self> {
        self.sink.clone().child().map(Self::new)
    }

    /// The id of the trace, if other programs know it.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.sink.trace_id()
    }

    /// This version of a model has accepted the request.
    pub fn accepted(&self, model: &Name, version: i64, request_id: &Name) {
        self.sink.accepted(model, version, request_id);
    }

    /// A backend reports an activity with a name of its own.
    pub fn custom(&self, name: &str, at: Timestamp) {
        self.sink.custom(name, at);
    }

    /// The numbers of the trace.
    pub fn identity(&self) -> TraceIdentity {
        self.sink.identity()
    }

    /// What a backend passes on to others: an object in JSON.
    pub fn propagated(&self) -> Option<String> {
        self.sink.propagated()
    }

    pub(crate) fn batched(&self, rows: u32) {
        self.sink.batched(rows);
    }

    pub(crate) fn tell_tensors(&self, activity: TensorActivity, tensors: &[Tensor]) {
        if self.sink.wants_tensors() {
            tensors.iter().for_each(|tensor| self.sink.tensor(activity, tensor));
        }
    }

    /// Tells the sink a time, unless it has been told one for the same activity.
    pub(crate) fn tell(&self, activity: TraceActivity, at: Timestamp) {
        if self.told.is_first(activity) {
            self.sink.reached(activity, at);
        }
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext").finish_non_exhaustive()
    }
}
