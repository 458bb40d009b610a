//! The sequence batcher: requests of one sequence run in order, one at a time, on one instance.
//!
//! A sequence begins with START. It gets a slot of an instance, or waits in the backlog until one is free,
//! and keeps the slot until its last request has left: the one with END, or what there was when it was
//! cancelled or had been idle for too long. The first sequence of the backlog moves in at that very moment,
//! and runs as soon as the backend has given back the request before.
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
pub use config::{DirectStrategy, OldestStrategy, SequenceBatching, Strategy};
pub use view::SlotState;

pub use crate::step::{SequenceId, SequenceStep};
