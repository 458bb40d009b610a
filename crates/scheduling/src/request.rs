//! What a policy knows of a request, and how a request that waits is named.
use std::time::Duration;

use crate::{step::SequenceStep, time::Timestamp};

/// All that a policy may know about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Rows the request brings, at least 1 (0 counts as 1).
    pub batch_size: u32,
    /// Level 1 is served first; 0 and levels the model does not have stand for its default level.
    pub priority: u64,
    /// Queueing time the client grants; a queue policy says whether this counts.
    pub timeout: Option<Duration>,
    /// Requests share a batch only if these are equal.
    pub shape_key: u64,
    /// Its place in a sequence. Only the sequence batcher looks at it.
    pub sequence: SequenceStep,
}

impl Default for Meta {
    /// One row, default level, no wishes.
    fn default() -> Self {
        Self { batch_size: 1, priority: 0, timeout: None, shape_key: 0, sequence: SequenceStep::default() }
    }
}

impl Meta {
    /// Rows the request takes in a batch.
    pub(crate) fn rows(&self) -> u32 {
        self.batch_size.max(1)
    }
}

/// Names a request that a scheduler has accepted, for [`Scheduler::cancel`](crate::Scheduler::cancel).
///
/// It means something to that scheduler only, is never used again there, and stays the same when the request comes back
/// for another execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The part of the scheduler's queue that the request waits in: a priority level, or the number of a sequence.
    pub(crate) queue: u64,
    /// Rises with each request of the scheduler.
    pub(crate) serial: u64,
}

/// A request that waits, or has just stopped waiting.
#[derive(Debug)]
pub struct Entry<T> {
    /// Its name in the scheduler that has accepted it.
    pub id: EntryId,
    /// What the policy looks at.
    pub meta: Meta,
    /// When it was accepted.
    pub arrived: Timestamp,
    /// What the policy carries.
    pub payload: T,
}
