//! Pure scheduling policy: time, requests and idle instances go in; batches and rejections come out.
//!
//! Nothing here reads a clock, spawns, blocks, logs or makes up an id, and there are no dependencies.
//! The payload `T` is opaque: a policy decides on [`Meta`] alone, so tests can schedule plain integers.
//!
//! A policy binds late: a batch is cut only when an instance is idle, and is final then. Whoever drives
//! it repeats after every piece of news (a request, an idle instance, a wake-up):
//! [`expire`](Scheduler::expire), then [`due`](Scheduler::due) and [`take`](Scheduler::take) while
//! something is due, then a wake-up at [`next_wakeup`](Scheduler::next_wakeup).
//!
//! [`RateLimiter`] stands beside the policies: the driver of each model asks the one that all models share
//! between `due` and `take`.
//!
//! Deliberately absent: statistics, error texts, and the sending of responses ([`ReorderBuffer`] only says in which order).
#![forbid(unsafe_code)]
#![deny(missing_docs)]
use std::time::Duration;

mod batch_filter;
mod cut;
mod dynamic;
mod priority_level;
mod queue;
mod rate_limiter;
mod reorder;
mod sequence;
mod time;
mod unbatched;

pub use batch_filter::{BatchFilter, BatchFilterState};
pub use dynamic::{DynamicBatcher, DynamicBatching};
pub use queue::{QueuePolicy, TimeoutAction};
pub use rate_limiter::{
    Capacities, Capacity, Claim, Claimant, Device, Grants, Need, RateLimiter, Resources, Shortage,
};
pub use reorder::{ReorderBuffer, Ticket};
pub use sequence::{
    DirectStrategy, OldestStrategy, SequenceBatcher, SequenceBatching, SequenceId, SequenceStep, SlotState,
    Strategy,
};
pub use time::Timestamp;
pub use unbatched::Unbatched;

/// Index of an instance within its model.
pub type InstanceId = usize;

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
    /// Its place in a sequence, if the client names one. Only the sequence batcher looks at it.
    pub sequence: Option<SequenceStep>,
}

impl Default for Meta {
    /// One row, default level, no wishes.
    fn default() -> Self {
        Self { batch_size: 1, priority: 0, timeout: None, shape_key: 0, sequence: None }
    }
}

impl Meta {
    /// Rows the request takes in a batch.
    pub(crate) fn rows(&self) -> u32 {
        self.batch_size.max(1)
    }
}

/// A request that waits, or has just stopped waiting.
#[derive(Debug)]
pub struct Entry<T> {
    /// What the policy looks at.
    pub meta: Meta,
    /// When it was accepted.
    pub arrived: Timestamp,
    /// What the policy carries.
    pub payload: T,
}

/// Requests that shall run together on one instance.
#[derive(Debug)]
pub struct Batch<T> {
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
        /// [`Scheduler::released`], or hand it to [`Scheduler::reschedule`].
        slot: Option<u32>,
    },
    /// Keeps later sequence slots in their place; the model is told "not ready".
    Padding,
}

/// A receipt for a batch that may leave now: hand it to [`Scheduler::take`] before anything else
/// happens to the scheduler, or drop it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the batch leaves only when the receipt is handed to `take`"]
pub struct DueBatch {
    instance: InstanceId,
    requests: usize,
}

impl DueBatch {
    /// Where the batch shall run: one of the instances that were said to be idle.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance
    }
}

/// A request the policy hands back unserved.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// What was carried.
    pub payload: T,
    /// Why.
    pub reason: Rejection,
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

/// A scheduling policy.
///
/// What holds for each, and is checked by this crate's random histories: every accepted payload leaves
/// exactly once, by `take`, `expire` or `sweep`; `take` after `due` is never empty; `next_wakeup(now)` is
/// later than `now`, and nothing changes by time alone before it.
/// A policy for sequences also hands payloads back by `lose_instance`, and takes some in again by `reschedule`.
///
/// `now` should not run backwards from call to call. If it does (clock read before the lock was taken),
/// requests count as arrived no earlier than the one before them.
pub trait Scheduler<T: Send>: Send {
    /// Accepts a request.
    ///
    /// # Errors
    /// Hands it back with [`Rejection::Draining`] after [`drain`](Self::drain), with
    /// [`Rejection::QueueFull`] if its queue policy says so, and, where requests belong to sequences, with
    /// the rule that it breaks.
    fn enqueue(&mut self, now: Timestamp, meta: Meta, payload: T) -> Result<(), Rejected<T>>;

    /// Hands back what may not wait any longer. Costs next to nothing when no deadline has passed.
    fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>>;

    /// Hands back every waiting request that `is_cancelled` says nobody waits for. Looks at all of them, so call
    /// it only when somebody has cancelled.
    fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>>;

    /// The batch that should leave now, if one of the `idle` instances (in order of preference) can take it.
    ///
    /// Call [`expire`](Self::expire) first: deadlines are not looked at here.
    fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch>;

    /// Removes the batch that `due` has just described.
    fn take(&mut self, due: DueBatch) -> Batch<T>;

    /// Says that the backend has given back the request of a sequence slot, and will not touch it again.
    /// That may be before or after its instance is idle; the next request of the slot waits for it.
    fn released(&mut self, _now: Timestamp, _instance: InstanceId, _slot: u32) {}

    /// Instead of [`released`](Self::released): the backend wants to work on the request of a sequence slot
    /// in one more execution.
    ///
    /// # Errors
    /// Hands it back with [`Rejection::NotIterative`] if the model is not configured for this, and with
    /// [`Rejection::InstanceLost`] if the slot is not there. `released` is owed then as before.
    fn reschedule(
        &mut self,
        _now: Timestamp,
        _instance: InstanceId,
        _slot: u32,
        entry: Entry<T>,
    ) -> Result<(), Rejected<T>> {
        Err(Rejected { payload: entry.payload, reason: Rejection::NotIterative })
    }

    /// An instance has joined. Policies without state in instances know them from `due` only.
    fn add_instance(&mut self, _now: Timestamp, _instance: InstanceId) {}

    /// An instance shall leave: nothing new begins there. It is still needed, and should be offered to
    /// [`due`](Self::due) when idle, until it [may leave](Self::may_leave).
    fn remove_instance(&mut self, _now: Timestamp, _instance: InstanceId) {}

    /// Whether nothing here depends on an instance that shall leave.
    fn may_leave(&self, _instance: InstanceId) -> bool {
        true
    }

    /// An instance has died. Hands back what could only have run there.
    fn lose_instance(&mut self, _now: Timestamp, _instance: InstanceId) -> Vec<Rejected<T>> {
        Vec::new()
    }

    /// The next moment, later than `now`, at which time alone may change an answer, given that
    /// everything due at `now` has been taken. It may come while no instance is idle.
    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp>;

    /// Takes no new requests from now on, but for those that continue a sequence. What waits still runs, and
    /// is not held back for company that cannot come any more.
    fn drain(&mut self);

    /// How many requests wait.
    fn in_flight(&self) -> usize;

    /// How many sequences may still get requests: until they have ended or fallen silent, a model that
    /// drains has not finished, whatever [`in_flight`](Self::in_flight) says.
    fn live_sequences(&self) -> usize {
        0
    }

    /// What is worth a line in the log since the last call. Ask after each visit; a few are kept.
    fn notes(&mut self) -> Vec<Note> {
        Vec::new()
    }
}
