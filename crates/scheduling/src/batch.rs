//! What a scheduler releases: batches, and receipts for batches that are due.
use crate::request::Entry;

/// Index of an instance within its model.
pub type InstanceId = usize;

/// Requests that must run together on one instance.
#[derive(Debug)]
pub struct ScheduledBatch<T> {
    /// The instance to run on.
    pub instance: InstanceId,
    /// The rows in the order in which the model must see them. At least one row is a request.
    pub rows: Vec<Row<T>>,
}

/// A row position in a batch.
#[derive(Debug)]
pub enum Row<T> {
    /// A request. The request may bring several rows of data.
    Request {
        /// The request.
        entry: Entry<T>,
        /// The sequence slot in which the request runs. After the backend has released the request, the caller must
        /// call [`Scheduler::released`](crate::Scheduler::released) or
        /// [`Scheduler::reschedule`](crate::Scheduler::reschedule).
        slot: Option<u32>,
    },
    /// An empty row. It keeps later sequence slots at their row numbers. Its READY control input is false.
    Padding,
}

/// A receipt for a batch that may leave now. Pass it to [`Scheduler::take`](crate::Scheduler::take) before any other
/// call to the scheduler, or drop it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the batch leaves only when the receipt is handed to `take`"]
pub struct DueBatch {
    pub(crate) instance: InstanceId,
    pub(crate) requests: usize,
}

impl DueBatch {
    /// The instance on which the batch must run. It is one of the instances that the caller listed as idle.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The instance, and the number of requests in the batch.
    pub(crate) fn used_up(self) -> (InstanceId, usize) {
        (self.instance, self.requests)
    }
}
