//! The sequence batcher: requests of one sequence run in order, one at a time, on one instance.
//!
//! A sequence begins with START. It gets a slot of an instance, or waits in the backlog until one is free. It keeps
//! the slot until its last request has left. The last request is the one with END. If the client cancels the
//! sequence, or the sequence is idle for too long, it is the last one that exists then. The first sequence of the
//! backlog then gets the slot at once. It runs as soon as the backend has released the previous request of the slot.
mod backlog;
mod batcher;
mod config;
mod direct;
mod oldest;
mod places;
mod requests;
mod service;
mod slots;
#[cfg(test)]
mod tests;
mod view;

pub use batcher::SequenceBatcher;
pub use config::{DirectStrategy, OldestStrategy, SequenceBatching, SequenceStrategy};
pub use view::{SlotState, VacatedSlot};

pub use crate::sequence_position::{SequenceId, SequencePosition};
