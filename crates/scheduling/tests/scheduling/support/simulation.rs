//! A model under a load, on a virtual clock, and the promises that hold at every step for every policy.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use scheduling::{
    DynamicBatching, QueuePolicy, Rejection, ScheduledBatch, SchedulingAttributes, TimeoutAction, Timestamp,
};

use crate::support::{
    batch_limit::BatchLimit,
    driver::{Driver, Outcome, RequestId},
    reference::Reference,
    subject::{Subject, requests},
};

/// The largest delay of a request's clock reading, in microseconds.
pub(crate) const MAX_CLOCK_LAG: u64 = 5;

/// One request of a history. Times are in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// Time after the previous request.
    pub(crate) gap: u64,
    /// The time between the thread's clock reading and its call to the scheduler.
    pub(crate) clock_lag: u64,
    pub(crate) attributes: SchedulingAttributes,
    /// Time after its own arrival.
    pub(crate) cancelled_after: Option<u64>,
    pub(crate) runs_for: u64,
    /// The number that a limit on the volume of a batch counts.
    pub(crate) volume: u32,
}

/// The events of a model.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) instances: usize,
    /// The number of requests that arrive before the model starts to drain.
    pub(crate) drained_after: usize,
    /// The number of requests that arrive before the queue delay ends.
    pub(crate) delay_ended_after: usize,
}

/// A model under a load, with a record of the requests that have left.
pub(crate) struct History {
    driver: Driver,
    config: DynamicBatching,
    batch_limit: BatchLimit,
    /// Used only to look up levels.
    levels: Reference,
    cancellations: BTreeSet<(Timestamp, RequestId)>,
    cancelled: BTreeSet<RequestId>,
    waiting: BTreeMap<RequestId, Waiting>,
    /// The requests that have left, each with its rejection if it did not run.
    pub(crate) gone: BTreeMap<RequestId, Option<Rejection>>,
    draining: bool,
}

#[derive(Debug)]
struct Waiting {
    attributes: SchedulingAttributes,
    level: u64,
    arrived: Timestamp,
}

impl History {
    /// Plays a load to its end, and checks the promises of every policy at each step.
    pub(crate) fn play(
        scheduler: Subject,
        config: DynamicBatching,
        batch_limit: BatchLimit,
        load: &Load,
    ) -> Self {
        let runs_for: Vec<_> = load.arrivals.iter().map(|arrival| arrival.runs_for).collect();
        let longest = move |batch: &ScheduledBatch<RequestId>| {
            requests(batch).map(|id| Duration::from_micros(runs_for[id as usize])).max()
        };
        let mut history = Self {
            driver: Driver::new(scheduler, load.instances, Box::new(longest)),
            levels: Reference::new(config.clone(), BatchLimit::default()),
            config,
            batch_limit,
            cancellations: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            waiting: BTreeMap::new(),
            gone: BTreeMap::new(),
            draining: false,
        };
        for (id, arrival) in load.arrivals.iter().enumerate() {
            if id == load.drained_after {
                history.drain();
            }
            if id == load.delay_ended_after {
                let outcomes = history.driver.end_queue_delay();
                history.record(outcomes);
            }
            history.advance(history.driver.now + Duration::from_micros(arrival.gap));
            history.arrive(id as RequestId, arrival);
        }
        history.drain();
        history.rest();
        assert_eq!(history.gone.len(), load.arrivals.len(), "everybody leaves");
        history
    }

    fn arrive(&mut self, id: RequestId, arrival: &Arrival) {
        let now = self.driver.now;
        if let Some(after) = arrival.cancelled_after {
            self.cancellations.insert((now + Duration::from_micros(after), id));
        }
        let attributes = arrival.attributes.clone();
        self.batch_limit.weigh(id, arrival.volume);
        let level = self.levels.level(&attributes);
        let full = self.policy(level).max_queue_size.is_some_and(|max| self.in_level(level) >= max.get());
        self.waiting.insert(id, Waiting { attributes: attributes.clone(), level, arrived: now });
        let clock_read = now.as_nanos().saturating_sub(arrival.clock_lag * 1_000);
        let outcomes = self.driver.arrive(id, attributes, Timestamp::from_nanos(clock_read));
        let refused = match outcomes.first() {
            Some(Outcome::Rejected(rejected, Rejection::Draining)) => *rejected == id && self.draining,
            Some(Outcome::Rejected(rejected, Rejection::QueueFull)) => *rejected == id && full,
            _ => false,
        };
        assert_eq!(refused, full || self.draining, "refused when and only when it must be");
        self.record(outcomes);
        let max = self.policy(level).max_queue_size;
        assert!(max.is_none_or(|max| self.in_level(level) <= max.get()), "level {level} is too long");
    }

    fn drain(&mut self) {
        self.draining = true;
        let outcomes = self.driver.drain();
        self.record(outcomes);
    }

    fn advance(&mut self, limit: Timestamp) {
        while let Some(next) = self.next_event().filter(|&next| next <= limit) {
            if let Some(outcomes) = self.driver.step(next) {
                self.record(outcomes);
            }
            self.driver.now = next;
            self.cancel();
        }
        self.driver.now = limit;
    }

    fn cancel(&mut self) {
        let now = self.driver.now;
        let mut cancelled = Vec::new();
        while let Some(&(at, id)) = self.cancellations.first().filter(|&&(at, _)| at <= now) {
            self.cancellations.remove(&(at, id));
            self.cancelled.insert(id);
            cancelled.push(id);
        }
        if !cancelled.is_empty() {
            let outcomes = self.driver.cancel(&cancelled);
            self.record(outcomes);
            assert!(self.waiting.keys().all(|id| !self.cancelled.contains(id)), "a cancelled request waits");
        }
    }

    fn rest(&mut self) {
        // No history needs more steps.
        for _ in 0..100_000 {
            let Some(next) = self.next_event() else { return };
            self.advance(next);
        }
        panic!("the history does not come to rest");
    }

    fn next_event(&mut self) -> Option<Timestamp> {
        let cancellation = self.cancellations.first().map(|&(at, _)| at);
        [cancellation, self.driver.next_event()].into_iter().flatten().min()
    }

    fn record(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Rejected(id, reason) => {
                    let left = self.leave(id, Some(reason));
                    match reason {
                        Rejection::Cancelled => assert!(self.cancelled.contains(&id)),
                        Rejection::TimedOut => self.check_timeout(&left),
                        Rejection::QueueFull | Rejection::Draining => {}
                        other => panic!("{id}: {other:?} is for sequences"),
                    }
                }
                Outcome::Started(batch) => self.start(&batch),
            }
        }
        assert_eq!(self.waiting.len(), self.driver.scheduler.queued());
    }

    fn start(&mut self, batch: &ScheduledBatch<RequestId>) {
        let batch: Vec<_> = requests(batch).map(|id| (id, self.leave(id, None))).collect();
        assert!(!batch.is_empty(), "an empty batch left");
        let rows: u32 = batch.iter().map(|(_, request)| request.attributes.batch_size.max(1)).sum();
        assert!(rows <= self.config.max_batch_size.max(1) || batch.len() == 1, "{rows} rows in a batch");
        assert!(
            batch.iter().all(|(_, request)| request.attributes.shape_key == batch[0].1.attributes.shape_key),
            "shapes are mixed"
        );
        let ids: Vec<_> = batch.iter().map(|(id, _)| *id).collect();
        for after_first in 1..ids.len() {
            let (before, next) = (&ids[..after_first], ids[after_first]);
            assert!(self.batch_limit.admits(before, next), "{next} may not join {before:?}");
        }
        for pair in batch.windows(2) {
            assert!(pair[0].1.level <= pair[1].1.level, "urgent requests come first");
            self.check_order(&pair[0], &pair[1]);
        }
        for (id, request) in &batch {
            assert!(!self.cancelled.contains(id), "a cancelled request runs");
            for (&other_id, other) in &self.waiting {
                assert!(request.level <= other.level, "{id} runs before {other_id}, which is more urgent");
                assert!(self.may_go_first(*id, request, other_id, other), "{id} runs before {other_id}");
            }
        }
    }

    fn check_order(&self, (first_id, first): &(RequestId, Waiting), (then_id, then): &(RequestId, Waiting)) {
        assert!(self.may_go_first(*first_id, first, *then_id, then), "{first_id} stands before {then_id}");
    }

    /// First come, first served within a level, unless the level delays late requests.
    fn may_go_first(&self, first_id: RequestId, first: &Waiting, then_id: RequestId, then: &Waiting) -> bool {
        let policy = self.policy(first.level);
        let delays = policy.default_timeout.is_some() && policy.timeout_action == TimeoutAction::Delay;
        first.level != then.level || first_id < then_id || delays
    }

    fn check_timeout(&self, request: &Waiting) {
        let policy = self.policy(request.level);
        assert_eq!(policy.timeout_action, TimeoutAction::Reject);
        let default = policy.default_timeout.expect("without a timeout nothing times out");
        let asked = request.attributes.timeout.filter(|_| policy.allow_timeout_override).unwrap_or(default);
        let waited = self.driver.now - request.arrived;
        let lag = Duration::from_micros(MAX_CLOCK_LAG);
        assert!(waited + lag > asked.min(default), "{request:?} timed out after {waited:?}");
    }

    fn leave(&mut self, id: RequestId, reason: Option<Rejection>) -> Waiting {
        assert_eq!(self.gone.insert(id, reason), None, "{id} leaves twice");
        self.waiting.remove(&id).expect("who leaves has waited")
    }

    fn policy(&self, level: u64) -> &QueuePolicy {
        self.config.priority_queue_policies.get(&level).unwrap_or(&self.config.default_queue_policy)
    }

    fn in_level(&self, level: u64) -> usize {
        self.waiting.values().filter(|waiting| waiting.level == level).count()
    }
}
