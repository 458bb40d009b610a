//! The queue of a model with batching: priority levels, queue limits and queue timeouts.
use std::collections::{BTreeMap, BTreeSet};

use super::{
    config::{DynamicBatching, TimeoutAction},
    priority_level::PriorityLevel,
    service_key::ServiceKey,
};
use crate::{
    batch::Row,
    cost_counter,
    rejection::{Rejected, Rejection},
    request::{Entry, EntryId, SchedulingAttributes},
    time::Timestamp,
};

/// A queue for each priority level. Order of service: the lowest level first; within a level the requests on time,
/// then the delayed ones; within each, first come, first served.
///
/// The cost of a call depends on the requests that it serves, not on those that wait. No call looks at all levels,
/// because clients can create many.
#[derive(Debug)]
pub(super) struct RequestQueue<T> {
    rules: DynamicBatching,
    levels: BTreeMap<u64, PriorityLevel<T>>,
    /// For each level that has a deadline: its earliest deadline, and the level.
    deadlines: BTreeSet<(Timestamp, u64)>,
    len: usize,
    accepted: u64,
}

/// The queue keeps up to this many empty levels, so that it does not allocate their buffers for each request. A
/// client can create up to 2^64 levels. The queue drops empty levels beyond this number.
const LEVELS_KEPT: usize = 16;

impl<T> RequestQueue<T> {
    pub(super) fn new(config: &DynamicBatching) -> Self {
        Self {
            rules: config.clone(),
            levels: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            len: 0,
            accepted: 0,
        }
    }

    /// Adds a request at the end of its level, and returns its key. `now` must not be earlier than in previous
    /// calls.
    pub(super) fn push(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        payload: T,
    ) -> Result<(EntryId, ServiceKey), Rejected<T>> {
        let number = self.rules.level(attributes.priority);
        let policy = self.rules.policy(number);
        let level = self.levels.entry(number).or_insert_with(|| PriorityLevel::new(number));
        if policy.max_queue_size.is_some_and(|max| level.len() >= max.get()) {
            return Err(Rejected { payload, reason: Rejection::QueueFull });
        }
        let waits_since = attributes.waits_since.map_or(now, |since| since.min(now));
        let deadline = policy.deadline(waits_since, &attributes);
        let id = EntryId { queue: number, serial: self.accepted };
        self.accepted += 1;
        self.change(number, |level| level.push(Entry { id, attributes, arrived: now, payload }, deadline));
        Ok((id, ServiceKey::on_time(number, id.serial)))
    }

    /// Whether a deadline has passed. If not, `expire` would change nothing.
    pub(super) fn may_expire(&self, now: Timestamp) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline < now)
    }

    /// Rejects or delays the requests that are late at `now`, as the policy of their level demands.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        let late = self.deadlines.range(..(now, 0)).map(|&(_, number)| number);
        let late: BTreeSet<_> = late.collect();
        let mut rejected = Vec::new();
        for number in late {
            let action = self.rules.policy(number).timeout_action;
            self.change(number, |level| {
                while let Some(entry) = level.pop_late(now) {
                    match action {
                        TimeoutAction::Delay => level.delay(entry),
                        TimeoutAction::Reject => rejected.push(Rejected::new(entry, Rejection::TimedOut)),
                    }
                }
            });
        }
        rejected
    }

    /// Removes a request, and returns the key that it had.
    pub(super) fn remove(&mut self, id: EntryId) -> Option<(ServiceKey, Entry<T>)> {
        self.change(id.queue, |level| level.remove(id.serial))?
    }

    /// Removes all requests, in order of service.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry<T>> + use<T> {
        self.deadlines.clear();
        self.len = 0;
        std::mem::take(&mut self.levels).into_values().flat_map(|mut level| level.take_all())
    }

    /// Requests in order of service.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceKey, &Entry<T>)> {
        self.levels.values().flat_map(|level| {
            cost_counter::count();
            level.iter()
        })
    }

    /// When the oldest request of the first levels arrived. Looks at the heads of a few levels only, because clients can
    /// create many.
    pub(super) fn oldest_arrival(&self) -> Option<Timestamp> {
        const LEVELS: usize = 64;
        self.levels.values().take(LEVELS).filter_map(PriorityLevel::oldest_arrival).min()
    }

    /// The request that is served last.
    pub(super) fn last(&self) -> Option<&Entry<T>> {
        self.levels.values().rev().find_map(PriorityLevel::last)
    }

    /// Removes the first `count` requests in order of service.
    pub(super) fn take_front(&mut self, count: usize) -> Vec<Row<T>> {
        debug_assert!(count <= self.len, "the receipt is older than the queue");
        let mut rows = Vec::with_capacity(count);
        while rows.len() < count {
            let mut levels = self.levels.iter().inspect(|_| cost_counter::count());
            let Some((&number, _)) = levels.find(|(_, level)| level.len() > 0) else { break };
            self.change(number, |level| {
                let left = count - rows.len();
                let served = std::iter::from_fn(|| level.pop()).take(left);
                rows.extend(served.map(|entry| Row::Request { entry, slot: None }));
            });
        }
        rows
    }

    /// The earliest deadline of all requests. A request is late only after its deadline.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Changes a level, and updates what the queue knows of all levels.
    fn change<A>(&mut self, number: u64, change: impl FnOnce(&mut PriorityLevel<T>) -> A) -> Option<A> {
        let level = self.levels.get_mut(&number)?;
        let (len, deadline) = (level.len(), level.next_deadline());
        let answer = change(level);
        let (new_len, new_deadline) = (level.len(), level.next_deadline());
        self.len = self.len - len + new_len;
        if deadline != new_deadline {
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, number));
            }
            self.deadlines.extend(new_deadline.map(|deadline| (deadline, number)));
        }
        if new_len == 0 && self.levels.len() > LEVELS_KEPT {
            self.levels.remove(&number);
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZero, time::Duration};

    use super::*;
    use crate::dynamic::config::QueuePolicy;

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
        queue
            .push(now, SchedulingAttributes { priority, ..SchedulingAttributes::default() }, payload)
            .expect("the queue has room");
    }

    fn order<T: Copy>(queue: &RequestQueue<T>) -> Vec<T> {
        queue.iter().map(|(_, entry)| entry.payload).collect()
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
    fn the_time_of_a_request_counts_from_when_it_began_to_wait() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            default_queue_policy: policy(10, TimeoutAction::Reject),
            ..Default::default()
        });
        let since = |millis| SchedulingAttributes {
            waits_since: Some(ms(millis)),
            ..SchedulingAttributes::default()
        };
        for (attributes, payload) in
            [(since(3), 'a'), (SchedulingAttributes::default(), 'b'), (since(20), 'c')]
        {
            queue.push(ms(5), attributes, payload).expect("the queue has room");
        }
        let late = |queue: &mut RequestQueue<char>, now| {
            queue.expire(now).into_iter().map(|rejected| rejected.payload).collect::<String>()
        };
        assert_eq!(late(&mut queue, ms(13)), "");
        assert_eq!(late(&mut queue, ms(14)), "a");
        // Nobody begins to wait later than now.
        assert_eq!(late(&mut queue, ms(16)), "bc");
    }

    #[test]
    fn a_request_that_began_to_wait_earlier_is_late_before_those_that_it_waits_behind() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            default_queue_policy: policy(10, TimeoutAction::Reject),
            ..Default::default()
        });
        push(&mut queue, ms(5), 0, 'a');
        let attributes = SchedulingAttributes { waits_since: Some(ms(3)), ..SchedulingAttributes::default() };
        queue.push(ms(6), attributes, 'b').expect("the queue has room");
        assert_eq!(queue.next_deadline(), Some(ms(13)));
        let late = queue.expire(ms(14));
        assert_eq!(late, [Rejected { payload: 'b', reason: Rejection::TimedOut }]);
        assert_eq!(queue.next_deadline(), Some(ms(15)));
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
        let refused =
            queue.push(ms(11), SchedulingAttributes { priority: 1, ..SchedulingAttributes::default() }, 'x');
        assert_eq!(refused.map(drop), Err(Rejected { payload: 'x', reason: Rejection::QueueFull }));
        assert_eq!(queue.next_deadline(), Some(ms(21)), "a delayed request has no deadline any more");
    }

    #[test]
    fn a_request_may_shorten_its_timeout_if_the_policy_lets_it() {
        let asks = |timeout| SchedulingAttributes {
            timeout: Some(Duration::from_millis(timeout)),
            ..SchedulingAttributes::default()
        };
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
        let mut ids = Vec::new();
        for (payload, timeout) in [('a', 100), ('b', 20), ('c', 100), ('d', 10), ('e', 30), ('f', 20)] {
            let timeout = Some(Duration::from_millis(timeout));
            let (id, _) = queue
                .push(ms(0), SchedulingAttributes { timeout, ..SchedulingAttributes::default() }, payload)
                .expect("no limit");
            ids.push(id);
        }
        let late: Vec<_> = queue.expire(ms(21)).into_iter().map(|late| late.payload).collect();
        assert_eq!(late, ['d', 'b', 'f']);
        assert_eq!(order(&queue), ['a', 'c', 'e']);
        assert_eq!(queue.remove(ids[4]).map(|(_, entry)| entry.payload), Some('e'));
        assert!(queue.remove(ids[4]).is_none() && queue.remove(ids[3]).is_none(), "they have left");
        assert_eq!(queue.next_deadline(), Some(ms(100)));
        queue.take_front(2);
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn levels_that_clients_invent_are_removed() {
        let mut queue = RequestQueue::new(&DynamicBatching {
            priority_levels: u64::MAX,
            default_priority_level: 1,
            ..Default::default()
        });
        for priority in 1..=1_000 {
            push(&mut queue, ms(0), priority, 'a');
        }
        assert_eq!(queue.take_front(999).len(), 999);
        assert!(queue.levels.len() <= LEVELS_KEPT);
        assert_eq!(queue.len(), 1);
    }
}
