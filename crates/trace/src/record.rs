//! What a trace has collected, while it is collected and on its way to a file or a collector.
use bytes::Bytes;
use inference::{TensorActivity, Timestamp, TraceIdentity};
use vocabulary::{ByteReservation, DataType, Name};

/// What the memory budget counts for an element, in bytes.
pub(crate) const ELEMENT_BYTES: usize = 96;

/// What the memory budget counts for a trace, in bytes.
pub(crate) const TRACE_BYTES: usize = 512;

/// A request that has ended, with all requests that followed from it.
pub(crate) struct FinishedTrace {
    /// The number of the settings that have sampled it.
    pub(crate) setting: u64,
    /// How many traces a file contains. 0 for one file.
    pub(crate) log_frequency: u32,
    /// The settings trace no further request, and all others have ended.
    pub(crate) is_last: bool,
    /// Its place in a distributed trace. `None` in mode `triton`.
    pub(crate) origin: Option<TraceOrigin>,
    /// The requests in the order in which they ended. The last one is the one of the client.
    pub(crate) requests: Vec<FinishedRequest>,
}

/// The place of a request of a client in a distributed trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceOrigin {
    pub(crate) trace_id: u128,
    /// The span of the client.
    pub(crate) parent_span: Option<u64>,
    pub(crate) state: Option<String>,
    pub(crate) root_span: u64,
    /// When the server began to work on the request.
    pub(crate) begun: Timestamp,
    /// What to add to a time of the process for a time since 1970, in nanoseconds.
    pub(crate) wall_offset: u64,
}

impl TraceOrigin {
    /// A time since 1970, in nanoseconds.
    pub(crate) fn wall(&self, at: u64) -> u64 {
        at.wrapping_add(self.wall_offset)
    }
}

/// What one request has collected.
pub(crate) struct FinishedRequest {
    pub(crate) identity: TraceIdentity,
    /// The span of the model, and the span that contains it; 0 in mode `triton`.
    pub(crate) spans: ModelSpans,
    /// The model that has accepted the request.
    pub(crate) about: Option<TracedModel>,
    pub(crate) elements: Vec<TraceElement>,
    /// The memory that the server's budget counts.
    pub(crate) _reservation: ByteReservation,
}

/// An id that no other span has.
pub(crate) fn new_span() -> u64 {
    rand::random::<u64>().max(1)
}

/// The ids of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ModelSpans {
    pub(crate) own: u64,
    pub(crate) parent: u64,
}

/// The model that a traced request went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TracedModel {
    pub(crate) name: Name,
    pub(crate) version: i64,
    pub(crate) request_id: Name,
}

/// What a trace collects, in the order in which it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TraceElement {
    /// The model has accepted the request.
    Accepted,
    /// The rows of the batch that contains the request.
    Batch(u32),
    /// A time of the server, in nanoseconds of the clock of the process.
    Time(&'static str, u64),
    /// A time of a plug-in, with a name of its own.
    Custom(Name, u64),
    /// A tensor.
    Tensor(TraceTensor),
}

/// A tensor in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceTensor {
    pub(crate) activity: TensorActivity,
    pub(crate) name: Name,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<i64>,
    pub(crate) data: Bytes,
}
