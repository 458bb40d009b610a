//! Pure scheduling policy. Inputs are time, requests and idle instances; outputs are batches and rejections.
//!
//! This crate reads no clock, spawns nothing, never blocks, logs nothing and makes no random ids. It has no
//! dependencies. The payload `T` is opaque: a policy decides on [`SchedulingAttributes`] alone, so tests can schedule
//! plain integers.
//!
//! A policy binds late: it cuts a batch only when an instance is idle, and the batch does not change afterwards. The
//! driver of a [`Scheduler`] repeats three steps after every event (a request, an idle instance, a wake-up). It calls
//! [`expire`](Scheduler::expire). It calls [`due`](Scheduler::due) and [`take`](Scheduler::take) while a batch is
//! due. It sets a wake-up for [`next_wakeup`](Scheduler::next_wakeup).
//!
//! [`RateLimiter`] is independent of the policies. All models share one rate limiter. The driver of each model asks
//! it between `due` and `take`.
//!
//! [`EnsembleRun`] is independent of the policies, too. It decides which step of an ensemble starts when.
//! [`SequenceTurns`] keeps the order of the requests of a sequence on their ways.
//!
//! This crate deliberately contains no statistics and no error texts, and sends no responses. [`ReorderBuffer`] only
//! decides their order.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod batch;
#[cfg(test)]
mod cancellation_tests;
mod cost_counter;
mod cut;
mod dynamic;
mod ensemble;
mod filter;
mod rate_limiter;
mod rejection;
mod reorder;
mod request;
mod scheduler;
mod sequence;
mod sequence_position;
mod serial_queue;
mod time;
mod unbatched;

pub use batch::{CutReason, DueBatch, InstanceId, Row, ScheduledBatch};
pub use dynamic::{DynamicBatcher, DynamicBatching, QueuePolicy, TimeoutAction};
pub use ensemble::{
    EnsembleAction, EnsembleGraph, EnsembleRun, GraphStep, SequenceTurns, StepIndex, StepInput, StepRun,
    TensorIndex, TensorValue, TurnPlace,
};
pub use filter::BatchFilter;
pub use rate_limiter::{
    Capacities, Capacity, Claim, Claimant, Grants, InstanceDevice, Need, RateLimiter, ResourceUse, Resources,
    Shortage,
};
pub use rejection::{Rejected, Rejection};
pub use reorder::{ReorderBuffer, Ticket};
pub use request::{Entry, EntryId, SchedulingAttributes};
pub use scheduler::Scheduler;
pub use sequence::{
    DirectStrategy, OldestStrategy, SequenceBatcher, SequenceBatching, SequenceId, SequencePosition,
    SequenceStrategy, SlotState, VacatedSlot,
};
pub use time::{Timestamp, nanos};
pub use unbatched::Unbatched;
