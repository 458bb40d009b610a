//! The `dynamic_batching` section of a model configuration.
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    time::Duration,
};

use crate::{request::SchedulingAttributes, time::Timestamp};

/// The `dynamic_batching` section of a model configuration, with the other settings that the dynamic batcher needs.
///
/// The batcher does not check the rules between the fields. The reader of the configuration checks them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DynamicBatching {
    /// Rows in a batch (`max_batch_size` of the model). 0 counts as 1: one request at a time.
    pub max_batch_size: u32,
    /// Batch sizes that the batcher waits for and cuts at (`preferred_batch_size`).
    ///
    /// If the set is empty, every request leaves alone and at once. It shares a batch only with other requests that
    /// have already waited for `max_queue_delay`. A configuration without preferred sizes means `{max_batch_size}`;
    /// the reader of the configuration fills that in.
    pub preferred_batch_sizes: BTreeSet<u32>,
    /// The longest time that the batcher holds a request back for a larger batch (`max_queue_delay_microseconds`).
    pub max_queue_delay: Duration,
    /// Whether responses leave in the order of requests (`preserve_ordering`). This setting does not change the
    /// batches. The sender of the responses keeps the order with a [`ReorderBuffer`](crate::ReorderBuffer).
    pub preserve_ordering: bool,
    /// Levels are 1 to this number. Level 1 is served first (`priority_levels`). 0 means no priorities.
    pub priority_levels: u64,
    /// The level of requests that name no existing level (`default_priority_level`).
    pub default_priority_level: u64,
    /// The queue policy of levels without a policy of their own (`default_queue_policy`).
    pub default_queue_policy: QueuePolicy,
    /// Queue policies by level (`priority_queue_policy`).
    pub priority_queue_policies: BTreeMap<u64, QueuePolicy>,
    /// For tests of clients: no batch leaves until the batcher has accepted this many requests once. 0 turns this off
    /// (environment variable `TRITONSERVER_DELAY_SCHEDULER`). Timeouts and cancellations still take effect.
    pub hold_until_queued: usize,
}

impl DynamicBatching {
    /// When a request that comes `at` this time has waited too long, if the queue rejects it then.
    #[must_use]
    pub fn rejection_time(&self, at: Timestamp, attributes: &SchedulingAttributes) -> Option<Timestamp> {
        let policy = self.policy(self.level(attributes.priority));
        if policy.timeout_action == TimeoutAction::Reject { policy.deadline(at, attributes) } else { None }
    }

    /// The level of a request with this priority. 0 if there are no levels.
    #[must_use]
    pub fn level(&self, priority: u64) -> u64 {
        match self.priority_levels {
            0 => 0,
            levels if (1..=levels).contains(&priority) => priority,
            _ => self.default_priority_level,
        }
    }

    pub(super) fn policy(&self, level: u64) -> &QueuePolicy {
        let of_level = self.priority_queue_policies.get(&level).filter(|_| self.priority_levels > 0);
        of_level.unwrap_or(&self.default_queue_policy)
    }
}

/// What a queue does when it is full, or when requests wait too long (`ModelQueuePolicy` of a model configuration).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuePolicy {
    /// The longest time that a request may wait. `None` and zero mean no limit (`default_timeout_microseconds`).
    pub default_timeout: Option<Duration>,
    /// What the queue does with a request that has waited longer (`timeout_action`).
    pub timeout_action: TimeoutAction,
    /// Whether a request may ask for a shorter timeout than the default (`allow_timeout_override`).
    ///
    /// A request can only shorten its timeout. Without a default there is no timeout to override, and no request
    /// times out.
    pub allow_timeout_override: bool,
    /// The number of requests that may wait, late requests included. `None` means no limit (`max_queue_size`).
    pub max_queue_size: Option<NonZero<usize>>,
}

impl QueuePolicy {
    pub(super) fn deadline(&self, now: Timestamp, attributes: &SchedulingAttributes) -> Option<Timestamp> {
        let default = self.default_timeout.filter(|timeout| !timeout.is_zero())?;
        let asked = attributes.timeout.filter(|timeout| self.allow_timeout_override && !timeout.is_zero());
        Some(now + asked.map_or(default, |asked| asked.min(default)))
    }
}

/// What a queue does with a request that has waited too long (`ModelQueuePolicy.TimeoutAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimeoutAction {
    /// The queue rejects the request (`REJECT`).
    #[default]
    Reject,
    /// The queue serves the request after all requests of its level that are on time (`DELAY`).
    Delay,
}
