//! The dynamic batcher: requests of one model, any instance, the largest sensible batch.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    Batch, BatchFilter, BatchFilterState, DueBatch, Entry, InstanceId, Meta, QueuePolicy, Rejected,
    Rejection, Scheduler, Timestamp,
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
pub struct DynamicBatcher<T> {
    queue: RequestQueue<T>,
    rule: CutRule,
    /// The front of `queue`, if known: forgotten at any change but growth behind it. It is found out by whoever asks
    /// first, and so behind a shared reference.
    open_batch: RefCell<Option<OpenBatch<T>>>,
    /// Outlives what it has begun, above.
    batch_filter: Option<Box<dyn BatchFilter<T>>>,
    latest_arrival: Timestamp,
    /// How many more requests `hold_until_queued` waits for.
    missing: usize,
    draining: bool,
}

/// The front of a queue, and the join rule's own view of it.
struct OpenBatch<T> {
    front: Front,
    /// Absent without a rule, and before the first request.
    filter_state: Option<Box<dyn BatchFilterState<T>>>,
}

impl<T> DynamicBatcher<T> {
    /// Starts with an empty queue.
    #[must_use]
    pub fn new(config: DynamicBatching) -> Self {
        Self {
            queue: RequestQueue::new(&config),
            rule: CutRule::new(config.max_batch_size, config.preferred_batch_sizes, config.max_queue_delay),
            open_batch: RefCell::new(None),
            batch_filter: None,
            latest_arrival: Timestamp::default(),
            missing: config.hold_until_queued,
            draining: false,
        }
    }

    /// The same, with one more rule about who may share a batch.
    #[must_use]
    pub fn with_batch_filter(self, rule: Box<dyn BatchFilter<T>>) -> Self {
        Self { open_batch: RefCell::new(None), batch_filter: Some(rule), ..self }
    }

    fn cut(&self, now: Timestamp) -> Cut {
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
        let mut known = self.open_batch.borrow_mut();
        if let Some(open_batch) = &*known {
            return open_batch.front;
        }
        let mut open_batch = OpenBatch { front: Front::default(), filter_state: None };
        for entry in self.queue.iter() {
            self.extend(&mut open_batch, entry);
            if open_batch.front.is_closed() {
                break;
            }
        }
        known.insert(open_batch).front
    }

    /// Adds the next request of the queue to its front, if it may join.
    fn extend(&self, open_batch: &mut OpenBatch<T>, next: &Entry<T>) {
        let OpenBatch { front, filter_state } = open_batch;
        *front = self.rule.extended(*front, &next.meta, next.arrived, || match &self.batch_filter {
            Some(rule) => filter_state.get_or_insert_with(|| rule.begin()).join(&next.payload),
            None => true,
        });
    }

    /// Says that the head of the queue may not be what it was.
    fn reset_open_batch(&mut self) {
        *self.open_batch.get_mut() = None;
    }
}

impl<T: Send> Scheduler<T> for DynamicBatcher<T> {
    fn enqueue(&mut self, now: Timestamp, meta: Meta, payload: T) -> Result<(), Rejected<T>> {
        if self.draining {
            return Err(Rejected { payload, reason: Rejection::Draining });
        }
        let arrived = now.max(self.latest_arrival);
        let before = self.queue.push(arrived, meta, payload)?;
        let mut known = self.open_batch.take();
        if before + 1 == self.queue.len() {
            if let (Some(open_batch), Some(last)) = (&mut known, self.queue.last()) {
                self.extend(open_batch, last);
            }
        } else {
            // If it comes after one that could not join, it makes no difference.
            known = known.filter(|open_batch| before > open_batch.front.requests());
        }
        self.open_batch.replace(known);
        self.latest_arrival = arrived;
        self.missing = self.missing.saturating_sub(1);
        Ok(())
    }

    fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        if !self.queue.may_expire(now) {
            return Vec::new();
        }
        self.reset_open_batch();
        self.queue.expire(now)
    }

    fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        self.reset_open_batch();
        self.queue.sweep(is_cancelled)
    }

    fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        let &instance = idle.first()?;
        match self.cut(now) {
            Cut::Release(requests) => Some(DueBatch { instance, requests }),
            Cut::Hold(_) | Cut::Empty => None,
        }
    }

    fn take(&mut self, due: DueBatch) -> Batch<T> {
        self.reset_open_batch();
        Batch { instance: due.instance, rows: self.queue.take_front(due.requests) }
    }

    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let patience_ends = match self.cut(now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(_) | Cut::Empty => None,
        };
        // A request is late when its deadline is over, not when it is reached.
        let late = self.queue.next_deadline().map(|deadline| deadline + Timestamp::TICK);
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_000);

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
        batcher.open_batch.borrow().is_some()
    }

    #[test]
    fn a_queue_that_grows_at_its_end_is_not_walked_again() {
        let mut batcher = batcher(DynamicBatching::default());
        assert!(batcher.due(NOW, &[0]).is_none());
        for _ in 0..10 {
            enqueue(&mut batcher, 2);
            assert!(knows_its_front(&batcher));
        }
        assert_eq!(batcher.due(NOW, &[0]), Some(DueBatch { instance: 0, requests: 4 }));
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
        assert_eq!(batcher.next_wakeup(NOW), Some(Timestamp::from_nanos(1_011)));
        assert_eq!(batcher.next_wakeup(Timestamp::from_nanos(1_011)), None, "it is high time to expire");
    }

    /// Lets everybody join, and counts the questions.
    struct Questions(Arc<AtomicUsize>);

    impl BatchFilter<u32> for Questions {
        fn begin(&self) -> Box<dyn BatchFilterState<u32>> {
            Box::new(Self(self.0.clone()))
        }
    }

    impl BatchFilterState<u32> for Questions {
        fn join(&mut self, _: &u32) -> bool {
            self.0.fetch_add(1, Relaxed);
            true
        }
    }

    #[test]
    fn a_long_queue_is_not_asked_about_at_each_visit() {
        let asked = Arc::new(AtomicUsize::new(0));
        let rule = Box::new(Questions(asked.clone()));
        let mut batcher = batcher(DynamicBatching::default()).with_batch_filter(rule);
        for _ in 0..1_000 {
            enqueue(&mut batcher, 2);
            assert!(batcher.due(NOW, &[]).is_none());
            assert!(batcher.next_wakeup(NOW).is_none());
        }
        assert_eq!(asked.load(Relaxed), 4, "what is behind a full batch");
        for _ in 0..250 {
            let due = batcher.due(NOW, &[0]).expect("there is enough for a batch");
            assert_eq!(batcher.take(due).rows.len(), 4);
            batcher.next_wakeup(NOW);
        }
        assert_eq!(asked.load(Relaxed), 1_000, "each request once");
    }
}
