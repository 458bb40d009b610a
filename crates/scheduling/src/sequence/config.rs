//! The `sequence_batching` section of a model configuration.
use std::{collections::BTreeSet, time::Duration};

/// How requests of sequences are scheduled, and what of the rest of a configuration matters to it.
///
/// Taken at its word: the rules between the fields are checked where configurations are read. Control
/// inputs and implicit state are not here: they are made of what a batch says of its requests.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceBatching {
    /// How sequences share batches (`strategy_choice`).
    pub strategy: Strategy,
    /// Rows in a batch (`max_batch_size` of the model). 0 counts as 1: one request at a time.
    pub max_batch_size: u32,
    /// How long a sequence that owns a slot and has nothing to do stays open without a request
    /// (`max_sequence_idle_microseconds`). The time begins when its last request has been given back.
    pub max_sequence_idle: Duration,
    /// Whether a request may take several executions, and is a sequence of its own if its client names none
    /// (`iterative_sequence`).
    pub iterative: bool,
    /// For tests from outside: no batch leaves until this many requests could leave, once; 0 is off
    /// (environment variable `TRITONSERVER_DELAY_SCHEDULER`). With [`Strategy::Direct`] all requests in
    /// slots count, with [`Strategy::Oldest`] the first of each sequence.
    pub hold_until_queued: usize,
    /// The same for requests in the backlog, in addition (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`).
    pub hold_until_backlogged: usize,
}

impl SequenceBatching {
    /// How many sequences an instance can have at a time.
    pub(super) fn slots_per_instance(&self) -> u32 {
        match &self.strategy {
            Strategy::Oldest(oldest) if oldest.max_candidate_sequences > 0 => oldest.max_candidate_sequences,
            Strategy::Oldest(_) | Strategy::Direct(_) => self.max_batch_size.max(1),
        }
    }
}

impl Default for SequenceBatching {
    /// The direct strategy without delay, one request at a time, sequences of one second's patience.
    fn default() -> Self {
        Self {
            strategy: Strategy::Direct(DirectStrategy::default()),
            max_batch_size: 0,
            max_sequence_idle: Duration::from_secs(1),
            iterative: false,
            hold_until_queued: 0,
            hold_until_backlogged: 0,
        }
    }
}

/// How requests of different sequences share a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// A slot is a row of the batch: a sequence keeps its row, and rows without a request are padded.
    Direct(DirectStrategy),
    /// Slots only limit how many sequences an instance has: requests of different ones make batches as those
    /// of the dynamic batcher do.
    Oldest(OldestStrategy),
}

/// Settings of the direct strategy (`StrategyDirect`). There are as many slots as rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DirectStrategy {
    /// How long a request may be held back while fewer slots have one than
    /// `minimum_slot_utilization` asks for (`max_queue_delay_microseconds`).
    pub max_queue_delay: Duration,
    /// The part of an instance's slots, 0 to 1, that is worth a batch at once. With 0 nothing is held back
    /// at all.
    pub minimum_slot_utilization: f32,
}

/// Settings of the oldest strategy (`StrategyOldest`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OldestStrategy {
    /// Slots of an instance; 0 is as many as a batch has rows (`max_candidate_sequences`).
    pub max_candidate_sequences: u32,
    /// Batch sizes worth waiting for, see [`DynamicBatching`](crate::DynamicBatching).
    pub preferred_batch_sizes: BTreeSet<u32>,
    /// How long a request may be held back for company (`max_queue_delay_microseconds`). The time begins
    /// when no earlier request of its sequence is before it any more.
    pub max_queue_delay: Duration,
    /// Whether the responses of an instance leave in the order of its requests (`preserve_ordering`). Batches
    /// are formed the same way; whoever sends the responses asks a [`ReorderBuffer`](crate::ReorderBuffer).
    pub preserve_ordering: bool,
}
