//! What a policy knows of a request, and how callers identify a waiting request.
use std::time::Duration;

use crate::{sequence_position::SequencePosition, time::Timestamp};

/// All that a policy may know of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingAttributes {
    /// Rows in the request, at least 1 (0 counts as 1).
    pub batch_size: u32,
    /// Level 1 is served first. 0 and levels that the model does not have mean the default level.
    pub priority: u64,
    /// The longest queueing time that the client allows. The queue policy decides whether this counts.
    pub timeout: Option<Duration>,
    /// When the request began to wait, if that was before it came to the queue. Its time counts from then.
    pub waits_since: Option<Timestamp>,
    /// Requests share a batch only if these are equal.
    pub shape_key: u64,
    /// The request's position in a sequence. Only the sequence batcher uses it.
    pub sequence: SequencePosition,
}

impl Default for SchedulingAttributes {
    /// One row, the default level, no timeout, no sequence.
    fn default() -> Self {
        Self {
            batch_size: 1,
            priority: 0,
            timeout: None,
            waits_since: None,
            shape_key: 0,
            sequence: SequencePosition::default(),
        }
    }
}

impl SchedulingAttributes {
    /// The rows that the request takes in a batch.
    pub(crate) fn rows(&self) -> u32 {
        self.batch_size.max(1)
    }
}

/// Identifies a request that a scheduler has accepted, for [`Scheduler::cancel`](crate::Scheduler::cancel).
///
/// The id is valid only in that scheduler, and the scheduler never uses it again. It stays the same when the backend
/// reschedules the request for another execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The part of the scheduler's queue in which the request waits: a priority level, or the number of a sequence.
    pub(crate) queue: u64,
    /// Increases with each request of the scheduler.
    pub(crate) serial: u64,
}

impl EntryId {
    /// The id of the request with that serial number, where no scheduler queues the requests.
    #[must_use]
    pub fn of_serial(serial: u64) -> Self {
        Self { queue: 0, serial }
    }

    /// The number of the request's sequence, if the sequence batcher has accepted the request. It increases with each
    /// sequence of the batcher.
    #[must_use]
    pub fn sequence_number(self) -> u64 {
        self.queue
    }
}

/// A request that waits, or has just stopped waiting.
#[derive(Debug)]
pub struct Entry<T> {
    /// The id of the request in the scheduler that accepted it.
    pub id: EntryId,
    /// The attributes on which the policy decides.
    pub attributes: SchedulingAttributes,
    /// When the scheduler accepted the request.
    pub arrived: Timestamp,
    /// The payload. The policy does not look at it.
    pub payload: T,
}
