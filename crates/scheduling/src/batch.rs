//! What a scheduler sends off: batches, and the receipts for them.
use crate::request::Entry;

/// Index of an instance within its model.
pub type InstanceId = usize;

/// Requests that shall run together on one instance.
#[derive(Debug)]
pub struct ScheduledBatch<T> {
    /// The instance to run on.
    pub instance: InstanceId,
    /// In the order the model shall see them; at least one is a request.
    pub rows: Vec<Row<T>>,
}

/// A place in a batch.
#[derive(Debug)]
pub enum Row<T> {
    /// A request, which may itself bring several rows of data.
    Request {
        /// The request.
        entry: Entry<T>,
        /// The sequence slot it runs in. When the backend has given the request back, tell
        /// [`Scheduler::released`](crate::Scheduler::released), or hand it to
        /// [`Scheduler::reschedule`](crate::Scheduler::reschedule).
        slot: Option<u32>,
    },
    /// Keeps later sequence slots in their place; the model is told "not ready".
    Padding,
}

/// A receipt for a batch that may leave now: hand it to [`Scheduler::take`](crate::Scheduler::take) before anything else
/// happens to the scheduler, or drop it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the batch leaves only when the receipt is handed to `take`"]
pub struct DueBatch {
    pub(crate) instance: InstanceId,
    pub(crate) requests: usize,
}

impl DueBatch {
    /// Where the batch shall run: one of the instances that were said to be idle.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The instance, and how many requests it takes.
    pub(crate) fn used_up(self) -> (InstanceId, usize) {
        (self.instance, self.requests)
    }
}
