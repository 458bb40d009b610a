//! A plain second version of the dynamic batcher: one list, sorted and scanned again for every answer.
//!
//! It follows the description of the decision step by step and keeps nothing between two calls. The real batcher,
//! which keeps results between calls, is compared with it.
use std::time::Duration;

use scheduling::{DynamicBatching, QueuePolicy, Rejection, SchedulingAttributes, TimeoutAction, Timestamp};

use crate::support::{batch_limit::BatchLimit, driver::RequestId};

#[derive(Debug)]
pub(crate) struct Reference {
    config: DynamicBatching,
    batch_limit: BatchLimit,
    waiting: Vec<Waiting>,
    accepted: usize,
    latest: Timestamp,
    draining: bool,
    delay_ended: bool,
}

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    attributes: SchedulingAttributes,
    arrived: Timestamp,
    level: u64,
    deadline: Option<Timestamp>,
    /// Set when the request is late and may stay. The queue then serves it in the order of lateness.
    late_since: Option<Timestamp>,
}

/// The result of the scan of the queue.
enum ReferenceCut {
    Send(usize),
    Wait(Timestamp),
    Nothing,
}

impl Reference {
    pub(crate) fn new(config: DynamicBatching, batch_limit: BatchLimit) -> Self {
        let latest = Timestamp::default();
        Self {
            config,
            batch_limit,
            waiting: Vec::new(),
            accepted: 0,
            latest,
            draining: false,
            delay_ended: false,
        }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        id: RequestId,
    ) -> Result<(), Rejection> {
        if self.draining {
            return Err(Rejection::Draining);
        }
        let (level, policy) = (self.level(&attributes), self.policy(&attributes));
        let in_level = self.waiting.iter().filter(|waiting| waiting.level == level).count();
        if policy.max_queue_size.is_some_and(|max| in_level >= max.get()) {
            return Err(Rejection::QueueFull);
        }
        let arrived = now.max(self.latest);
        let deadline = timeout(policy, &attributes).map(|timeout| arrived + timeout);
        self.waiting.push(Waiting { id, attributes, arrived, level, deadline, late_since: None });
        self.accepted += 1;
        self.latest = arrived;
        Ok(())
    }

    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<RequestId> {
        let late = |waiting: &Waiting| waiting.deadline.is_some_and(|deadline| now > deadline);
        let mut rejected = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let action = self.policy(&waiting.attributes).timeout_action;
            if late(&waiting) && action == TimeoutAction::Reject {
                rejected.push((waiting.level, waiting.deadline, waiting.id));
                continue;
            }
            if late(&waiting) {
                waiting.late_since = waiting.deadline.take();
            }
            self.waiting.push(waiting);
        }
        rejected.sort_unstable();
        rejected.into_iter().map(|(.., id)| id).collect()
    }

    pub(crate) fn cancel(&mut self, request: RequestId) -> Vec<RequestId> {
        self.waiting.extract_if(.., |waiting| waiting.id == request).map(|waiting| waiting.id).collect()
    }

    /// The batch that should leave now, if an instance is idle.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<RequestId> {
        let ReferenceCut::Send(count) = self.walk(now) else { return Vec::new() };
        self.in_order().into_iter().take(count).map(|waiting| waiting.id).collect()
    }

    pub(crate) fn take(&mut self, batch: &[RequestId]) {
        self.waiting.retain(|waiting| !batch.contains(&waiting.id));
    }

    pub(crate) fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let deadlines = self.waiting.iter().filter_map(|waiting| waiting.deadline);
        let late = deadlines.min().map(|deadline| deadline + Duration::from_nanos(1));
        let waits = match self.walk(now) {
            ReferenceCut::Wait(until) => Some(until),
            ReferenceCut::Send(_) | ReferenceCut::Nothing => None,
        };
        [late, waits].into_iter().flatten().filter(|&at| at > now).min()
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.delay_ended = true;
    }

    pub(crate) fn end_queue_delay(&mut self) {
        self.delay_ended = true;
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn level(&self, attributes: &SchedulingAttributes) -> u64 {
        match self.config.priority_levels {
            0 => 0,
            levels if attributes.priority == 0 || attributes.priority > levels => {
                self.config.default_priority_level
            }
            _ => attributes.priority,
        }
    }

    fn policy(&self, attributes: &SchedulingAttributes) -> &QueuePolicy {
        let own = self.config.priority_queue_policies.get(&self.level(attributes));
        own.unwrap_or(&self.config.default_queue_policy)
    }

    fn in_order(&self) -> Vec<&Waiting> {
        let mut order: Vec<_> = self.waiting.iter().collect();
        order.sort_by_key(|waiting| (waiting.level, waiting.late_since, waiting.id));
        order
    }

    fn walk(&self, now: Timestamp) -> ReferenceCut {
        if !self.delay_ended && self.accepted < self.config.hold_until_queued {
            return ReferenceCut::Nothing;
        }
        let max = self.config.max_batch_size.max(1);
        let largest_preferred = self.config.preferred_batch_sizes.iter().max().copied().unwrap_or(0);
        let mut pending: Vec<&Waiting> = Vec::new();
        let mut cut = 0;
        let mut blocked = false;
        for next in self.in_order() {
            let so_far = size(&pending);
            let grown = so_far + next.attributes.batch_size.max(1);
            let ids: Vec<_> = pending.iter().map(|waiting| waiting.id).collect();
            let admitted = self.batch_limit.admits(&ids, next.id);
            if let Some(first) = pending.first() {
                if grown > largest_preferred && cut == 0 {
                    cut = pending.len();
                }
                if grown > max || next.attributes.shape_key != first.attributes.shape_key || !admitted {
                    blocked = true;
                    break;
                }
            }
            pending.push(next);
            if self.config.preferred_batch_sizes.contains(&grown) {
                cut = pending.len();
            }
            if !admitted {
                // Even the first request is refused. It runs, but no other request may join it.
                blocked = true;
                break;
            }
        }
        let Some(oldest) = pending.iter().map(|waiting| waiting.arrived).min() else {
            return ReferenceCut::Nothing;
        };
        let delay = self.config.max_queue_delay;
        let late = delay > Duration::ZERO && now - oldest >= delay;
        if cut > 0 && !late {
            return ReferenceCut::Send(cut);
        }
        let ready = blocked || size(&pending) >= largest_preferred;
        if ready || late || delay == Duration::ZERO || self.delay_ended {
            return ReferenceCut::Send(pending.len());
        }
        ReferenceCut::Wait(oldest + delay)
    }
}

fn size(requests: &[&Waiting]) -> u32 {
    requests.iter().map(|waiting| waiting.attributes.batch_size.max(1)).sum()
}

fn timeout(policy: &QueuePolicy, attributes: &SchedulingAttributes) -> Option<Duration> {
    match (policy.default_timeout, attributes.timeout) {
        (None | Some(Duration::ZERO), _) => None,
        (Some(default), Some(asked)) if policy.allow_timeout_override && asked > Duration::ZERO => {
            Some(asked.min(default))
        }
        (Some(default), _) => Some(default),
    }
}
