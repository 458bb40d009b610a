//! Pure scheduling policy: time, requests and idle instances go in; batches and rejections come out.
//!
//! Nothing here reads a clock, spawns, blocks, logs or makes up an id, and there are no dependencies.
//! The payload `T` is opaque: a policy decides on [`Meta`] alone, so tests can schedule plain integers.
//!
//! A policy binds late: a batch is cut only when an instance is idle, and is final then. The driver of a [`Scheduler`]
//! repeats after every piece of news (a request, an idle instance, a wake-up):
//! [`expire`](Scheduler::expire), then [`due`](Scheduler::due) and [`take`](Scheduler::take) while
//! something is due, then a wake-up at [`next_wakeup`](Scheduler::next_wakeup).
//!
//! [`RateLimiter`] stands beside the policies: the driver of each model asks the one that all models share
//! between `due` and `take`.
//!
//! Deliberately absent: statistics, error texts, and the sending of responses ([`ReorderBuffer`] only says in which order).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod batch;
#[cfg(test)]
mod cancellation_tests;
mod cut;
mod dynamic;
mod filter;
mod rate_limiter;
mod rejection;
mod reorder;
mod request;
mod scheduler;
mod sequence;
mod serial_queue;
mod step;
mod steps;
mod time;
mod unbatched;

pub use batch::{DueBatch, InstanceId, Row, ScheduledBatch};
pub use dynamic::{DynamicBatcher, DynamicBatching, QueuePolicy, TimeoutAction};
pub use filter::BatchFilter;
pub use rate_limiter::{
    Capacities, Capacity, Claim, Claimant, Device, Grants, Need, RateLimiter, Resources, Shortage,
};
pub use rejection::{Note, Rejected, Rejection};
pub use reorder::{ReorderBuffer, Ticket};
pub use request::{Entry, EntryId, Meta};
pub use scheduler::Scheduler;
pub use sequence::{
    DirectStrategy, OldestStrategy, SequenceBatcher, SequenceBatching, SequenceId, SequenceStep, SlotState,
    Strategy,
};
pub use time::Timestamp;
pub use unbatched::Unbatched;
