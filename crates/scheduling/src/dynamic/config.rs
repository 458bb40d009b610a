//! The `dynamic_batching` section of a model configuration.
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    time::Duration,
};

use crate::{request::Meta, time::Timestamp};

/// The `dynamic_batching` section of a model configuration, and what of the rest matters to it.
///
/// Taken at its word: the rules between the fields are checked where configurations are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DynamicBatching {
    /// Rows in a batch (`max_batch_size` of the model). 0 counts as 1: one request at a time.
    pub max_batch_size: u32,
    /// Sizes worth waiting for, and worth cutting at (`preferred_batch_size`).
    ///
    /// Empty is none: then every request leaves alone and at once, and shares a batch only with others that
    /// have already waited for `max_queue_delay`. A configuration that names none means
    /// `{max_batch_size}`; whoever reads it puts that here.
    pub preferred_batch_sizes: BTreeSet<u32>,
    /// How long a request may be held back for company (`max_queue_delay_microseconds`).
    pub max_queue_delay: Duration,
    /// Whether responses leave in the order of requests (`preserve_ordering`). Batches are formed the
    /// same way; whoever sends the responses asks a [`ReorderBuffer`](crate::ReorderBuffer).
    pub preserve_ordering: bool,
    /// Levels are 1 to this number, 1 is served first (`priority_levels`). 0 is no priorities at all.
    pub priority_levels: u64,
    /// The level of requests that name none of these (`default_priority_level`).
    pub default_priority_level: u64,
    /// The queue policy of levels without their own (`default_queue_policy`).
    pub default_queue_policy: QueuePolicy,
    /// Queue policies by level (`priority_queue_policy`).
    pub priority_queue_policies: BTreeMap<u64, QueuePolicy>,
    /// For tests from outside: no batch leaves until this many requests have been accepted, once; 0 is
    /// off (environment variable `TRITONSERVER_DELAY_SCHEDULER`). Timeouts and cancellations go on.
    pub hold_until_queued: usize,
}

/// What one queue does when it is full or slow (`ModelQueuePolicy` of a model configuration).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuePolicy {
    /// How long a request may wait; `None` (and zero) is for ever (`default_timeout_microseconds`).
    pub default_timeout: Option<Duration>,
    /// What happens to a request that has waited longer (`timeout_action`).
    pub timeout_action: TimeoutAction,
    /// Whether a request may ask for a shorter timeout than the default (`allow_timeout_override`).
    ///
    /// It can only shorten: without a default there is nothing to override, and nothing times out.
    pub allow_timeout_override: bool,
    /// How many requests may wait, late ones included; `None` is no limit (`max_queue_size`).
    pub max_queue_size: Option<NonZero<usize>>,
}

impl QueuePolicy {
    pub(super) fn deadline(&self, now: Timestamp, meta: &Meta) -> Option<Timestamp> {
        let default = self.default_timeout.filter(|timeout| !timeout.is_zero())?;
        let asked = meta.timeout.filter(|timeout| self.allow_timeout_override && !timeout.is_zero());
        Some(now + asked.map_or(default, |asked| asked.min(default)))
    }
}

/// What happens to a request that has waited too long (`ModelQueuePolicy.TimeoutAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimeoutAction {
    /// It is rejected (`REJECT`).
    #[default]
    Reject,
    /// It is served after everything in its level that is on time (`DELAY`).
    Delay,
}
