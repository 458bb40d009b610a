//! What a scheduler releases: batches, and receipts for batches that are due.
use crate::request::Entry;

/// Index of an instance within its model.
pub type InstanceId = usize;

/// Why a batch ended where it did: what kept further requests out, or why the batch did not wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CutReason {
    /// The batch has the largest size, or the next request does not fit into it.
    Full,
    /// The batch has a preferred size, or the next request would pass the largest one. For slots of sequences: enough of
    /// them have a request.
    PreferredSize,
    /// The queue delay of its oldest request was over.
    Delay,
    /// The next request has another shape.
    Shape,
    /// The batching strategy of the model did not admit the next request.
    Filter,
    /// No further request waited, an instance was idle, and the model has no queue delay.
    #[default]
    IdleInstance,
    /// The model drains, so that waiting for further requests has no effect.
    Drain,
    /// The model does not batch: each request is a batch.
    Unbatched,
}

impl CutReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::PreferredSize,
        Self::Delay,
        Self::Shape,
        Self::Filter,
        Self::IdleInstance,
        Self::Drain,
        Self::Unbatched,
    ];

    /// The reason in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::PreferredSize => "preferred_size",
            Self::Delay => "delay",
            Self::Shape => "shape",
            Self::Filter => "strategy",
            Self::IdleInstance => "idle_instance",
            Self::Drain => "drain",
            Self::Unbatched => "unbatched",
        }
    }
}

/// Requests that must run together on one instance.
#[derive(Debug)]
pub struct ScheduledBatch<T> {
    /// The instance to run on.
    pub instance: InstanceId,
    /// The rows in the order in which the model must see them. At least one row is a request.
    pub rows: Vec<Row<T>>,
    /// Why it has no more rows.
    pub end: CutReason,
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
    pub(crate) end: CutReason,
}

impl DueBatch {
    /// The instance on which the batch must run. It is one of the instances that the caller listed as idle.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The instance, the number of requests in the batch, and why it ends with them.
    pub(crate) fn used_up(self) -> (InstanceId, usize, CutReason) {
        (self.instance, self.requests, self.end)
    }
}
