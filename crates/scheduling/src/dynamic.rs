//! The dynamic batcher: requests of one model, any instance, the largest sensible batch.
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    Batch, Due, InstanceId, Meta, Moment, QueuePolicy, Rejected, Rejection, Scheduler,
    cut::{Cut, CutRule, Front},
    queue::RequestQueue,
};

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

/// The policy of a model with [`DynamicBatching`].
///
/// Requests are never reordered to fit: a batch is always the head of the queue.
#[derive(Debug)]
pub struct DynamicBatcher<T> {
    queue: RequestQueue<T>,
    rule: CutRule,
    /// The front of `queue`, if known: forgotten at any change but growth behind it.
    front: Cell<Option<Front>>,
    latest_arrival: Moment,
    /// How many more requests `hold_until_queued` waits for.
    missing: usize,
    draining: bool,
}

impl<T> DynamicBatcher<T> {
    /// Starts with an empty queue.
    #[must_use]
    pub fn new(config: DynamicBatching) -> Self {
        Self {
            queue: RequestQueue::new(&config),
            rule: CutRule::new(config.max_batch_size, config.preferred_batch_sizes, config.max_queue_delay),
            front: Cell::new(None),
            latest_arrival: Moment::default(),
            missing: config.hold_until_queued,
            draining: false,
        }
    }

    fn cut(&self, now: Moment) -> Cut {
        if self.missing > 0 {
            return Cut::Empty;
        }
        let front = self.front();
        match self.rule.decide(&front, now) {
            // Nobody else will come: waiting would be for nothing.
            Cut::Hold(_) if self.draining => Cut::Release(front.requests()),
            cut => cut,
        }
    }

    fn front(&self) -> Front {
        if let Some(front) = self.front.get() {
            return front;
        }
        let mut front = Front::default();
        for entry in self.queue.iter() {
            front = self.rule.extended(front, &entry.meta, entry.arrived);
            if front.is_closed() {
                break;
            }
        }
        self.front.set(Some(front));
        front
    }
}

impl<T: Send> Scheduler<T> for DynamicBatcher<T> {
    fn enqueue(&mut self, now: Moment, meta: Meta, payload: T) -> Result<(), Rejected<T>> {
        if self.draining {
            return Err(Rejected { payload, reason: Rejection::Draining });
        }
        let arrived = now.max(self.latest_arrival);
        let known = self.front.get();
        let extended = known.map(|front| self.rule.extended(front, &meta, arrived));
        let before = self.queue.push(arrived, meta, payload)?;
        self.front.set(match known {
            _ if before + 1 == self.queue.len() => extended,
            // It comes after one that could not join: no difference.
            Some(front) if before > front.requests() => known,
            _ => None,
        });
        self.latest_arrival = arrived;
        self.missing = self.missing.saturating_sub(1);
        Ok(())
    }

    fn expire(&mut self, now: Moment) -> Vec<Rejected<T>> {
        if !self.queue.may_expire(now) {
            return Vec::new();
        }
        self.front.set(None);
        self.queue.expire(now)
    }

    fn sweep(&mut self, gone: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        self.front.set(None);
        self.queue.sweep(gone)
    }

    fn due(&self, now: Moment, idle: &[InstanceId]) -> Option<Due> {
        let &instance = idle.first()?;
        match self.cut(now) {
            Cut::Release(requests) => Some(Due { instance, requests }),
            Cut::Hold(_) | Cut::Empty => None,
        }
    }

    fn take(&mut self, due: Due) -> Batch<T> {
        self.front.set(None);
        Batch { instance: due.instance, rows: self.queue.take_front(due.requests) }
    }

    fn next_wakeup(&self, now: Moment) -> Option<Moment> {
        let patience_ends = match self.cut(now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(_) | Cut::Empty => None,
        };
        // A request is late when its deadline is over, not when it is reached.
        let late = self.queue.next_deadline().map(|deadline| deadline + Moment::TICK);
        [patience_ends, late].into_iter().flatten().filter(|&at| now < at).min()
    }

    fn drain(&mut self) {
        self.draining = true;
        self.missing = 0;
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000);

    fn batcher(config: DynamicBatching) -> DynamicBatcher<u32> {
        DynamicBatcher::new(DynamicBatching {
            max_batch_size: 4,
            preferred_batch_sizes: [4].into(),
            priority_levels: 2,
            default_priority_level: 2,
            ..config
        })
    }

    fn enqueue(batcher: &mut DynamicBatcher<u32>, priority: u64) {
        batcher.enqueue(NOW, Meta { priority, ..Meta::default() }, 0).expect("the queue has no limit");
    }

    fn knows_its_front(batcher: &DynamicBatcher<u32>) -> bool {
        batcher.front.get().is_some()
    }

    #[test]
    fn a_queue_that_grows_at_its_end_is_not_walked_again() {
        let mut batcher = batcher(DynamicBatching::default());
        assert!(batcher.due(NOW, &[0]).is_none());
        for _ in 0..10 {
            enqueue(&mut batcher, 2);
            assert!(knows_its_front(&batcher));
        }
        assert_eq!(batcher.due(NOW, &[0]), Some(Due { instance: 0, requests: 4 }));
    }

    #[test]
    fn a_request_behind_a_full_batch_does_not_spoil_it() {
        let mut batcher = batcher(DynamicBatching::default());
        for priority in [1, 1, 1, 1, 1, 2] {
            enqueue(&mut batcher, priority);
        }
        assert!(batcher.due(NOW, &[0]).is_some());
        enqueue(&mut batcher, 1);
        assert!(knows_its_front(&batcher), "it comes between the levels, but behind the batch");
    }

    #[test]
    fn a_request_that_goes_before_others_makes_the_queue_worth_another_look() {
        let mut batcher = batcher(DynamicBatching::default());
        enqueue(&mut batcher, 2);
        assert!(batcher.due(NOW, &[0]).is_some(), "without delay it is due at once");
        enqueue(&mut batcher, 1);
        assert!(!knows_its_front(&batcher));
    }

    #[test]
    fn a_refused_request_changes_nothing() {
        let mut batcher = batcher(DynamicBatching {
            default_queue_policy: QueuePolicy {
                max_queue_size: std::num::NonZero::new(1),
                ..QueuePolicy::default()
            },
            hold_until_queued: 2,
            ..DynamicBatching::default()
        });
        enqueue(&mut batcher, 2);
        assert_eq!(
            batcher.enqueue(NOW, Meta::default(), 7),
            Err(Rejected { payload: 7, reason: Rejection::QueueFull })
        );
        assert_eq!(batcher.in_flight(), 1);
        assert_eq!(batcher.due(NOW, &[0]), None, "only accepted requests end the hold");
    }

    #[test]
    fn a_wake_up_is_never_in_the_past() {
        let mut batcher = batcher(DynamicBatching {
            default_queue_policy: QueuePolicy {
                default_timeout: Some(Duration::from_nanos(10)),
                ..QueuePolicy::default()
            },
            ..DynamicBatching::default()
        });
        enqueue(&mut batcher, 2);
        assert_eq!(batcher.next_wakeup(NOW), Some(Moment::from_nanos(1_011)));
        assert_eq!(batcher.next_wakeup(Moment::from_nanos(1_011)), None, "it is high time to expire");
    }
}
