//! The policy of the dynamic batcher. It decides what is due from the head of its queue.
use super::{config::DynamicBatching, queue::RequestQueue, service_key::ServiceKey};
use crate::{
    batch::{CutReason, DueBatch, InstanceId, Row},
    cut::{Cut, CutRule, OpenBatch},
    filter::BatchFilter,
    rejection::{Rejected, Rejection},
    request::{Entry, EntryId, SchedulingAttributes},
    time::Timestamp,
};

/// The policy of a model with [`DynamicBatching`].
///
/// Requests are never reordered to fit a batch: a batch is always the head of the queue.
pub struct DynamicBatcher<T> {
    queue: RequestQueue<T>,
    rule: CutRule,
    /// The open batch of `queue`, if known. Every change of the queue discards it, except growth behind the open batch.
    known: Option<KnownOpenBatch>,
    filter: Option<Box<dyn BatchFilter<T>>>,
    latest_arrival: Timestamp,
    /// The number of further requests for which `hold_until_queued` waits.
    missing: usize,
    draining: bool,
    /// No request waits for further requests.
    delay_ended: bool,
}

/// The requests at the head of a queue.
#[derive(Debug, Default)]
struct KnownOpenBatch {
    open_batch: OpenBatch,
    /// The last request that the batcher looked at: the last one of the open batch, or the one that may not join the
    /// open batch. If no request is behind it, the open batch contains the whole queue.
    last: Option<ServiceKey>,
}

impl<T> DynamicBatcher<T> {
    /// Starts with an empty queue.
    #[must_use]
    pub fn new(config: DynamicBatching) -> Self {
        Self {
            queue: RequestQueue::new(&config),
            rule: CutRule::new(config.max_batch_size, config.preferred_batch_sizes, config.max_queue_delay),
            known: None,
            filter: None,
            latest_arrival: Timestamp::default(),
            missing: config.hold_until_queued,
            draining: false,
            delay_ended: false,
        }
    }

    /// As [`new`](Self::new), with a further rule for which requests may share a batch.
    #[must_use]
    pub fn with_filter(self, filter: Box<dyn BatchFilter<T>>) -> Self {
        Self { known: None, filter: Some(filter), ..self }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        payload: T,
    ) -> Result<EntryId, Rejected<T>> {
        if self.draining {
            return Err(Rejected { payload, reason: Rejection::Draining });
        }
        let arrived = now.max(self.latest_arrival);
        let (id, key) = self.queue.push(arrived, attributes, payload)?;
        match &mut self.known {
            Some(known) if known.last < Some(key) => {
                // A closed batch does not change. Another one takes the new request if that request is the next one.
                if !known.open_batch.is_closed()
                    && let Some(last) = self.queue.last()
                {
                    extend(&self.rule, &mut self.filter, known, key, last);
                }
            }
            Some(_) => self.reset_open_batch(),
            None => {}
        }
        self.latest_arrival = arrived;
        self.missing = self.missing.saturating_sub(1);
        Ok(id)
    }

    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        if !self.queue.may_expire(now) {
            return Vec::new();
        }
        self.reset_open_batch();
        self.queue.expire(now)
    }

    pub(crate) fn cancel(&mut self, entry: EntryId) -> Option<Rejected<T>> {
        let (key, entry) = self.queue.remove(entry)?;
        if self.known.as_ref().is_some_and(|known| Some(key) <= known.last) {
            self.reset_open_batch();
        }
        Some(Rejected::new(entry, Rejection::Cancelled))
    }

    pub(crate) fn reject_all(&mut self) -> Vec<Rejected<T>> {
        self.reset_open_batch();
        self.queue.take_all().map(|entry| Rejected::new(entry, Rejection::Cancelled)).collect()
    }

    pub(crate) fn due(&mut self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        let &instance = idle.first()?;
        match self.cut(now) {
            Cut::Release(requests, end) => Some(DueBatch { instance, requests, end }),
            Cut::Hold(_) | Cut::Empty => None,
        }
    }

    pub(crate) fn take(&mut self, requests: usize) -> Vec<Row<T>> {
        self.reset_open_batch();
        self.queue.take_front(requests)
    }

    /// The requests that would have left with the batch if it had waited in the queue until now. A filter knows only the
    /// batch that it has seen last, so that with a filter no batch grows. `None` if there are no such requests.
    pub(crate) fn take_more(&mut self, now: Timestamp, batch: &[Row<T>]) -> Option<(Vec<Row<T>>, CutReason)> {
        if self.queue.len() == 0 || self.filter.is_some() {
            return None;
        }
        let mut open_batch = OpenBatch::default();
        let in_batch = batch.iter().filter_map(|row| match row {
            Row::Request { entry, .. } => Some(entry),
            Row::Padding => None,
        });
        for entry in in_batch.chain(self.queue.iter().map(|(_, entry)| entry)) {
            open_batch = self.rule.extended(open_batch, &entry.attributes, entry.arrived, || true);
            if open_batch.is_closed() {
                break;
            }
        }
        match self.decide(&open_batch, now) {
            Cut::Release(requests, end) if requests > batch.len() => {
                Some((self.take(requests - batch.len()), end))
            }
            Cut::Release(..) | Cut::Hold(_) | Cut::Empty => None,
        }
    }

    pub(crate) fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        let patience_ends = match self.cut(now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(..) | Cut::Empty => None,
        };
        // A request is late after its deadline, not at its deadline.
        let late = self.queue.next_deadline().map(|deadline| deadline + Timestamp::TICK);
        [patience_ends, late].into_iter().flatten().filter(|&at| now < at).min()
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        // No further request can arrive. Waiting would have no effect.
        self.end_queue_delay();
    }

    pub(crate) fn end_queue_delay(&mut self) {
        self.delay_ended = true;
        self.missing = 0;
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn oldest_arrival(&self) -> Option<Timestamp> {
        self.queue.oldest_arrival()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        self.queue.iter().map(|(_, entry)| entry)
    }

    fn cut(&mut self, now: Timestamp) -> Cut {
        if self.missing > 0 {
            return Cut::Empty;
        }
        let open_batch = self.open_batch();
        self.decide(&open_batch, now)
    }

    fn decide(&self, open_batch: &OpenBatch, now: Timestamp) -> Cut {
        match self.rule.decide(open_batch, now) {
            Cut::Hold(_) if self.delay_ended => Cut::Release(open_batch.requests(), CutReason::Drain),
            cut => cut,
        }
    }

    fn open_batch(&mut self) -> OpenBatch {
        if let Some(known) = &self.known {
            return known.open_batch;
        }
        let mut known = KnownOpenBatch::default();
        for (key, entry) in self.queue.iter() {
            extend(&self.rule, &mut self.filter, &mut known, key, entry);
            if known.open_batch.is_closed() {
                break;
            }
        }
        self.known.insert(known).open_batch
    }

    /// Records that the head of the queue may have changed.
    fn reset_open_batch(&mut self) {
        if self.known.take().is_some()
            && let Some(filter) = &mut self.filter
        {
            filter.reset();
        }
    }
}

/// Adds the next request of the queue to the open batch, if it may join.
fn extend<T>(
    rule: &CutRule,
    filter: &mut Option<Box<dyn BatchFilter<T>>>,
    known: &mut KnownOpenBatch,
    key: ServiceKey,
    next: &Entry<T>,
) {
    let may_join = || filter.as_mut().is_none_or(|filter| filter.admit(&next.payload));
    known.open_batch = rule.extended(known.open_batch, &next.attributes, next.arrived, may_join);
    known.last = Some(key);
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        time::Duration,
    };

    use super::*;
    use crate::QueuePolicy;

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

    fn enqueue(batcher: &mut DynamicBatcher<u32>, priority: u64) -> EntryId {
        batcher
            .enqueue(NOW, SchedulingAttributes { priority, ..SchedulingAttributes::default() }, 0)
            .expect("the queue has no limit")
    }

    fn knows_its_open_batch(batcher: &DynamicBatcher<u32>) -> bool {
        batcher.known.is_some()
    }

    #[test]
    fn a_queue_that_grows_at_its_end_is_not_examined_again() {
        let mut batcher = batcher(DynamicBatching::default());
        assert!(batcher.due(NOW, &[0]).is_none());
        for _ in 0..10 {
            enqueue(&mut batcher, 2);
            assert!(knows_its_open_batch(&batcher));
        }
        assert_eq!(batcher.due(NOW, &[0]), Some(DueBatch { instance: 0, requests: 4, end: CutReason::Full }));
    }

    #[test]
    fn a_request_behind_a_full_batch_does_not_reset_it() {
        let mut batcher = batcher(DynamicBatching::default());
        for priority in [1, 1, 1, 1, 1, 2] {
            enqueue(&mut batcher, priority);
        }
        assert!(batcher.due(NOW, &[0]).is_some());
        enqueue(&mut batcher, 1);
        assert!(knows_its_open_batch(&batcher), "it comes between the levels, but behind the batch");
    }

    #[test]
    fn a_request_that_passes_others_resets_the_open_batch() {
        let mut batcher = batcher(DynamicBatching::default());
        enqueue(&mut batcher, 2);
        assert!(batcher.due(NOW, &[0]).is_some(), "without delay it is due at once");
        enqueue(&mut batcher, 1);
        assert!(!knows_its_open_batch(&batcher));
    }

    #[test]
    fn a_cancellation_behind_a_full_batch_does_not_reset_it() {
        let mut batcher = batcher(DynamicBatching::default());
        let ids = [2; 7].map(|priority| enqueue(&mut batcher, priority));
        assert!(batcher.due(NOW, &[0]).is_some());
        for behind in [ids[6], ids[5]] {
            assert!(batcher.cancel(behind).is_some());
            assert!(knows_its_open_batch(&batcher));
        }
        assert!(batcher.cancel(ids[4]).is_some());
        assert!(!knows_its_open_batch(&batcher), "that one had ended the batch");
        assert_eq!(batcher.due(NOW, &[0]), Some(DueBatch { instance: 0, requests: 4, end: CutReason::Full }));
        assert!(batcher.cancel(ids[0]).is_some());
        assert_eq!(
            batcher.due(NOW, &[0]),
            Some(DueBatch { instance: 0, requests: 3, end: CutReason::IdleInstance })
        );
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
            batcher.enqueue(NOW, SchedulingAttributes::default(), 7),
            Err(Rejected { payload: 7, reason: Rejection::QueueFull })
        );
        assert_eq!(batcher.queued(), 1);
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

    /// Admits every request, and counts the calls.
    struct Questions(Arc<AtomicUsize>);

    impl BatchFilter<u32> for Questions {
        fn admit(&mut self, _: &u32) -> bool {
            self.0.fetch_add(1, Relaxed);
            true
        }

        fn reset(&mut self) {}
    }

    #[test]
    fn the_filter_is_called_once_for_each_request_of_a_long_queue() {
        let asked = Arc::new(AtomicUsize::new(0));
        let filter = Box::new(Questions(asked.clone()));
        let mut batcher = batcher(DynamicBatching::default()).with_filter(filter);
        for _ in 0..1_000 {
            enqueue(&mut batcher, 2);
            assert!(batcher.due(NOW, &[]).is_none());
            assert!(batcher.next_wakeup(NOW).is_none());
        }
        assert_eq!(asked.load(Relaxed), 4, "what is behind a full batch");
        for _ in 0..250 {
            let due = batcher.due(NOW, &[0]).expect("there is enough for a batch");
            assert_eq!(batcher.take(due.requests).len(), 4);
            batcher.next_wakeup(NOW);
        }
        assert_eq!(asked.load(Relaxed), 1_000, "each request once");
    }
}
