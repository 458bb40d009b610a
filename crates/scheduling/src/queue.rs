//! Where requests of a batched model wait: priority levels, queue limits and queue timeouts.
use std::{collections::BTreeMap, num::NonZero, time::Duration};

use crate::{
    DynamicBatching, Entry, Meta, Rejected, Rejection, Row, Timestamp, priority_level::PriorityLevel,
};

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
    fn deadline(&self, now: Timestamp, meta: &Meta) -> Option<Timestamp> {
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

/// Which level a request belongs to and what holds there.
#[derive(Debug)]
struct LevelRules {
    priority_levels: u64,
    default_level: u64,
    default_policy: QueuePolicy,
    policies: BTreeMap<u64, QueuePolicy>,
}

impl LevelRules {
    fn level(&self, priority: u64) -> u64 {
        if (1..=self.priority_levels).contains(&priority) { priority } else { self.default_level }
    }

    fn policy(&self, level: u64) -> &QueuePolicy {
        self.policies.get(&level).unwrap_or(&self.default_policy)
    }
}

/// A queue per priority level. Order of service: lowest level first; within a level those on time, then
/// those delayed; within each, first come first served.
///
/// Serving costs what is served, not what waits, but every level in use is looked at: there are few.
#[derive(Debug)]
pub(crate) struct RequestQueue<T> {
    rules: LevelRules,
    levels: BTreeMap<u64, PriorityLevel<T>>,
    len: usize,
    /// No request has an earlier deadline than this. It may be too early, when the request it stems from
    /// has been served: that costs `expire` one look at each level, not at each request.
    deadlines_begin: Option<Timestamp>,
}

/// Empty levels are kept up to this many, so that their buffers are not allocated for each request.
/// A client can make up to 2^64 levels: beyond this, empty ones go.
const LEVELS_KEPT: usize = 16;

impl<T> RequestQueue<T> {
    pub(crate) fn new(config: &DynamicBatching) -> Self {
        let rules = LevelRules {
            priority_levels: config.priority_levels,
            default_level: if config.priority_levels == 0 { 0 } else { config.default_priority_level },
            default_policy: config.default_queue_policy.clone(),
            policies: if config.priority_levels == 0 {
                BTreeMap::new()
            } else {
                config.priority_queue_policies.clone()
            },
        };
        Self { rules, levels: BTreeMap::new(), len: 0, deadlines_begin: None }
    }

    /// Adds a request at the end of its level and says how many are served before it. `now` must not be
    /// earlier than in calls before.
    pub(crate) fn push(&mut self, now: Timestamp, meta: Meta, payload: T) -> Result<usize, Rejected<T>> {
        let number = self.rules.level(meta.priority);
        let policy = self.rules.policy(number);
        let level =
            self.levels.entry(number).or_insert_with(|| PriorityLevel::new(policy.allow_timeout_override));
        if policy.max_queue_size.is_some_and(|max| level.len() >= max.get()) {
            return Err(Rejected { payload, reason: Rejection::QueueFull });
        }
        let deadline = policy.deadline(now, &meta);
        let before_in_level = level.on_time();
        level.push(Entry { meta, arrived: now, payload }, deadline);
        self.len += 1;
        self.deadlines_begin = earliest(self.deadlines_begin, deadline);
        Ok(self.levels.range(..number).map(|(_, level)| level.len()).sum::<usize>() + before_in_level)
    }

    /// Whether some deadline may have passed: if not, `expire` would change nothing.
    pub(crate) fn may_expire(&self, now: Timestamp) -> bool {
        self.deadlines_begin.is_some_and(|deadline| deadline < now)
    }

    /// Rejects or delays, as the policy of their level says, what is late at `now`.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        let mut rejected = Vec::new();
        for (&number, level) in &mut self.levels {
            let action = self.rules.policy(number).timeout_action;
            while let Some(entry) = level.pop_late(now) {
                match action {
                    TimeoutAction::Delay => level.delay(entry),
                    TimeoutAction::Reject => {
                        rejected.push(Rejected { payload: entry.payload, reason: Rejection::TimedOut });
                    }
                }
            }
        }
        self.len -= rejected.len();
        self.deadlines_begin = self.next_deadline();
        self.remove_empty_levels();
        rejected
    }

    /// Removes every request that `is_cancelled` says nobody waits for.
    pub(crate) fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        let mut swept = Vec::new();
        for level in self.levels.values_mut() {
            swept.extend(level.sweep(is_cancelled));
        }
        self.len -= swept.len();
        self.remove_empty_levels();
        swept
            .into_iter()
            .map(|entry| Rejected { payload: entry.payload, reason: Rejection::Cancelled })
            .collect()
    }

    /// Requests in order of service.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.levels.values().flat_map(PriorityLevel::iter)
    }

    /// The request that is served last.
    pub(crate) fn last(&self) -> Option<&Entry<T>> {
        self.levels.values().rev().find_map(PriorityLevel::last)
    }

    /// Removes the first `count` requests in order of service.
    pub(crate) fn take_front(&mut self, count: usize) -> Vec<Row<T>> {
        debug_assert!(count <= self.len, "the receipt is older than the queue");
        let mut rows = Vec::with_capacity(count);
        for level in self.levels.values_mut() {
            while rows.len() < count {
                let Some(entry) = level.pop() else { break };
                rows.push(Row::Request { entry, slot: None });
            }
            if rows.len() == count {
                break;
            }
        }
        self.len -= rows.len();
        self.remove_empty_levels();
        rows
    }

    /// The earliest deadline of all. A request is late only after it.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.levels.values().filter_map(PriorityLevel::next_deadline).min()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn remove_empty_levels(&mut self) {
        if self.levels.len() > LEVELS_KEPT {
            self.levels.retain(|_, level| level.len() > 0);
        }
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn policy(timeout: u64, timeout_action: TimeoutAction) -> QueuePolicy {
        QueuePolicy {
            default_timeout: Some(Duration::from_millis(timeout)),
            timeout_action,
            ..QueuePolicy::default()
        }
    }

    fn push(queue: &mut RequestQueue<char>, now: Timestamp, priority: u64, payload: char) {
        queue.push(now, Meta { priority, ..Meta::default() }, payload).expect("the queue has room");
    }

    fn order<T: Copy>(queue: &RequestQueue<T>) -> Vec<T> {
        queue.iter().map(|entry| entry.payload).collect()
    }

    #[test]
    fn lower_levels_are_served_first_and_strange_ones_count_as_the_default() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            priority_levels: 3,
            default_priority_level: 2,
            ..Default::default()
        });
        for (priority, payload) in [(3, 'f'), (2, 'b'), (0, 'c'), (4, 'd'), (u64::MAX, 'e'), (1, 'a')] {
            push(&mut queue, ms(0), priority, payload);
        }
        assert_eq!(order(&queue), ['a', 'b', 'c', 'd', 'e', 'f']);
    }

    #[test]
    fn a_model_without_levels_has_one() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            default_priority_level: 7,
            priority_queue_policies: [(7, policy(1, TimeoutAction::Reject))].into(),
            ..Default::default()
        });
        push(&mut queue, ms(0), 9, 'a');
        push(&mut queue, ms(0), 1, 'b');
        assert_eq!(order(&queue), ['a', 'b']);
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn the_highest_level_there_can_be_works() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            priority_levels: u64::MAX,
            default_priority_level: 1 << 32,
            ..Default::default()
        });
        push(&mut queue, ms(0), u64::MAX, 'c');
        push(&mut queue, ms(0), 0, 'b');
        push(&mut queue, ms(0), (1 << 32) - 1, 'a');
        assert_eq!(order(&queue), ['a', 'b', 'c']);
    }

    #[test]
    fn a_request_is_on_time_until_its_deadline_is_over() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            default_queue_policy: policy(10, TimeoutAction::Reject),
            ..Default::default()
        });
        push(&mut queue, ms(0), 0, 'a');
        assert_eq!(queue.next_deadline(), Some(ms(10)));
        assert!(!queue.may_expire(ms(10)));
        assert!(queue.may_expire(ms(10) + Timestamp::TICK));
        assert_eq!(queue.expire(ms(10)), []);
        let late = queue.expire(ms(10) + Timestamp::TICK);
        assert_eq!(late, [Rejected { payload: 'a', reason: Rejection::TimedOut }]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn delayed_requests_stay_in_their_level_and_in_the_limit() {
        let limited = QueuePolicy { max_queue_size: NonZero::new(2), ..policy(10, TimeoutAction::Delay) };
        let mut queue = RequestQueue::new(&DynamicBatching {
            priority_levels: 2,
            default_priority_level: 2,
            priority_queue_policies: [(1, limited)].into(),
            ..Default::default()
        });
        push(&mut queue, ms(0), 2, 'c');
        push(&mut queue, ms(0), 1, 'b');
        assert_eq!(queue.expire(ms(11)), []);
        push(&mut queue, ms(11), 1, 'a');
        assert_eq!(order(&queue), ['a', 'b', 'c']);
        let refused = queue.push(ms(11), Meta { priority: 1, ..Meta::default() }, 'x');
        assert_eq!(refused, Err(Rejected { payload: 'x', reason: Rejection::QueueFull }));
        assert_eq!(queue.next_deadline(), Some(ms(21)), "a delayed request has no deadline any more");
    }

    #[test]
    fn a_request_may_shorten_its_timeout_if_the_policy_lets_it() {
        let asks = |timeout| Meta { timeout: Some(Duration::from_millis(timeout)), ..Meta::default() };
        let deadline = |allow_timeout_override, default_timeout: u64, asked| {
            let policy =
                QueuePolicy { allow_timeout_override, ..policy(default_timeout, TimeoutAction::Reject) };
            policy.deadline(ms(0), &asks(asked))
        };
        assert_eq!(deadline(true, 10, 5), Some(ms(5)));
        assert_eq!(deadline(true, 10, 20), Some(ms(10)), "it may not lengthen it");
        assert_eq!(deadline(true, 10, 0), Some(ms(10)), "zero says nothing");
        assert_eq!(deadline(false, 10, 5), Some(ms(10)));
        assert_eq!(deadline(true, 0, 5), None, "without a default there is nothing to shorten");
    }

    #[test]
    fn shortened_timeouts_are_found_wherever_their_requests_wait() {
        let overridable = QueuePolicy { allow_timeout_override: true, ..policy(100, TimeoutAction::Reject) };
        let mut queue =
            RequestQueue::new(&DynamicBatching { default_queue_policy: overridable, ..Default::default() });
        for (payload, timeout) in [('a', 100), ('b', 20), ('c', 100), ('d', 10), ('e', 30), ('f', 20)] {
            let timeout = Some(Duration::from_millis(timeout));
            queue.push(ms(0), Meta { timeout, ..Meta::default() }, payload).expect("no limit");
        }
        let late: Vec<_> = queue.expire(ms(21)).into_iter().map(|late| late.payload).collect();
        assert_eq!(late, ['d', 'b', 'f']);
        assert_eq!(order(&queue), ['a', 'c', 'e']);
        queue.sweep(&|&payload| payload == 'e');
        assert_eq!(queue.next_deadline(), Some(ms(100)));
        queue.take_front(2);
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn levels_made_up_by_clients_do_not_stay() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            priority_levels: u64::MAX,
            default_priority_level: 1,
            ..Default::default()
        });
        for priority in 1..=1_000 {
            push(&mut queue, ms(0), priority, 'a');
        }
        assert_eq!(queue.take_front(999).len(), 999);
        assert_eq!(queue.levels.len(), 1);
    }
}
