//! The `sequence_batching` section of a model configuration.
use std::{collections::BTreeSet, time::Duration};

/// How requests of sequences are scheduled, with the other settings that the sequence batcher needs.
///
/// The batcher does not check the rules between the fields. The reader of the configuration checks them. Control
/// inputs and implicit state are not part of this type: the executor makes them from what a batch states about its
/// requests.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceBatching {
    /// How sequences share batches (`strategy_choice`).
    pub strategy: SequenceStrategy,
    /// Rows in a batch (`max_batch_size` of the model). 0 counts as 1: one request at a time.
    pub max_batch_size: u32,
    /// How long a sequence with a slot and without work stays open without a request
    /// (`max_sequence_idle_microseconds`). The time starts when the backend has released the last request of the
    /// sequence.
    pub max_sequence_idle: Duration,
    /// Whether a request may take several executions (`iterative_sequence`). A request without a correlation id is
    /// then a sequence of its own.
    pub iterative: bool,
    /// For tests of clients: no batch leaves until this many requests could leave once. 0 turns this off (environment
    /// variable `TRITONSERVER_DELAY_SCHEDULER`). With [`SequenceStrategy::Direct`] all requests in slots count. With
    /// [`SequenceStrategy::Oldest`] the first request of each sequence counts.
    pub hold_until_queued: usize,
    /// A further limit of the same kind, for requests in the backlog (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`).
    pub hold_until_backlogged: usize,
}

impl SequenceBatching {
    /// The number of sequences that an instance can have at a time.
    #[must_use]
    pub fn slots_per_instance(&self) -> u32 {
        match &self.strategy {
            SequenceStrategy::Oldest(oldest) if oldest.max_candidate_sequences > 0 => {
                oldest.max_candidate_sequences
            }
            SequenceStrategy::Oldest(_) | SequenceStrategy::Direct(_) => self.max_batch_size.max(1),
        }
    }
}

impl Default for SequenceBatching {
    /// The direct strategy without delay, one request at a time. A sequence may be idle for one second.
    fn default() -> Self {
        Self {
            strategy: SequenceStrategy::Direct(DirectStrategy::default()),
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
pub enum SequenceStrategy {
    /// A slot is a row of the batch. A sequence keeps its row, and rows without a request are padded.
    Direct(DirectStrategy),
    /// Slots only limit the number of sequences of an instance. Requests of different sequences form batches as in
    /// the dynamic batcher.
    Oldest(OldestStrategy),
}

/// Settings of the direct strategy (`StrategyDirect`). An instance has as many slots as a batch has rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DirectStrategy {
    /// The longest time that a request is held back while fewer slots have a request than `minimum_slot_utilization`
    /// demands (`max_queue_delay_microseconds`).
    pub max_queue_delay: Duration,
    /// The fraction of an instance's slots, 0 to 1, that is enough for a batch at once. With 0 no request is held
    /// back.
    pub minimum_slot_utilization: f32,
}

/// Settings of the oldest strategy (`StrategyOldest`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OldestStrategy {
    /// Slots of an instance (`max_candidate_sequences`). 0 means as many as a batch has rows.
    pub max_candidate_sequences: u32,
    /// Batch sizes that the batcher waits for. See [`DynamicBatching`](crate::DynamicBatching).
    pub preferred_batch_sizes: BTreeSet<u32>,
    /// The longest time that a request is held back for a larger batch (`max_queue_delay_microseconds`). The time
    /// starts when no earlier request of its sequence is before it.
    pub max_queue_delay: Duration,
    /// Whether the responses of an instance leave in the order of its requests (`preserve_ordering`). This setting
    /// does not change the batches. The sender of the responses keeps the order with a
    /// [`ReorderBuffer`](crate::ReorderBuffer).
    pub preserve_ordering: bool,
}
