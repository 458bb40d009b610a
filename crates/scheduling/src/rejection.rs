//! How a scheduler refuses a request, and what it tells the operator.
use crate::{request::Entry, step::SequenceId};

/// A request the policy hands back unserved.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// What was carried.
    pub payload: T,
    /// Why.
    pub reason: Rejection,
}

impl<T> Rejected<T> {
    pub(crate) fn new(entry: Entry<T>, reason: Rejection) -> Self {
        Self { payload: entry.payload, reason }
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Its queue holds as many requests as it may.
    QueueFull,
    /// It waited longer than it may.
    TimedOut,
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The model takes no new work.
    Draining,
    /// It brings more rows than the one that a request of a sequence may have.
    MultipleRows,
    /// It belongs to no sequence, and the model knows nothing else.
    MissingSequence,
    /// Its sequence has not begun, or is over: a request with START must come first.
    MissingStart,
    /// Some request of its sequence waited for a slot longer than it may, which ends the sequence.
    SequenceTimedOut,
    /// It was to run once more, but the model is not one whose requests take several executions.
    NotIterative,
    /// The instance that has the state of its sequence is gone.
    InstanceLost,
}

/// Something worth telling the operator that changes nothing for the request it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A request with START came for a sequence that had not ended. It goes on in the same place: what was
    /// there before still runs first.
    Restarted(SequenceId),
}
