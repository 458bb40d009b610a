//! Why a scheduler refuses a request.
use crate::request::Entry;

/// A request that the policy returns without serving it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// The payload of the request.
    pub payload: T,
    /// The reason.
    pub reason: Rejection,
}

impl<T> Rejected<T> {
    pub(crate) fn new(entry: Entry<T>, reason: Rejection) -> Self {
        Self { payload: entry.payload, reason }
    }
}

/// Why a scheduler does not serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The queue already holds as many requests as it may.
    QueueFull,
    /// The request waited longer than it may.
    TimedOut,
    /// The client has cancelled the request.
    Cancelled,
    /// The model accepts no new work.
    Draining,
    /// The request has more than one row. A request of a sequence may have only one.
    MultipleRows,
    /// The request belongs to no sequence, but the model accepts only requests of sequences.
    MissingSequence,
    /// The sequence of the request has not begun, or has ended. A request with START must come first.
    MissingStart,
    /// A request of the sequence waited for a slot longer than it may. This ends the sequence.
    SequenceTimedOut,
    /// The backend rescheduled the request, but the model does not allow several executions of a request.
    NotIterative,
    /// The instance with the state of the sequence no longer exists.
    InstanceLost,
}
