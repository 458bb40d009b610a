//! Any policy, any load, a virtual clock: what the scheduler promises holds at every step.
//!
//! A failing history is shrunk and printed with the seed that repeats it. `PROPTEST_CASES=100000` looks
//! harder than the default does.
use std::{cell::RefCell, collections::BTreeMap, env, num::NonZero, time::Duration};

use nereid_scheduling::{
    Batch, DueBatch, DynamicBatcher, DynamicBatching, InstanceId, Meta, QueuePolicy, Rejected, Rejection,
    Scheduler, TimeoutAction, Timestamp, Unbatched,
};
use proptest::prelude::*;

#[path = "support/batch_limit.rs"]
mod batch_limit;
#[path = "support/driver.rs"]
mod driver;
#[path = "support/reference.rs"]
mod reference;
#[path = "support/simulation.rs"]
mod simulation;

use batch_limit::{BatchLimit, Limit};
use driver::RequestId;
use reference::Reference;
use simulation::{Arrival, History, Load, MAX_CLOCK_LAG, requests};

/// The real batcher and the plain one, answering together.
struct Both {
    real: DynamicBatcher<RequestId>,
    plain: Reference,
    /// What the plain one would send off now.
    expected: RefCell<Vec<RequestId>>,
}

impl Scheduler<RequestId> for Both {
    fn enqueue(&mut self, now: Timestamp, meta: Meta, id: RequestId) -> Result<(), Rejected<RequestId>> {
        let plain = self.plain.enqueue(now, meta.clone(), id);
        let real = self.real.enqueue(now, meta, id);
        assert_eq!(real.as_ref().err().map(|rejected| rejected.reason), plain.err(), "enqueue({id})");
        real
    }

    fn expire(&mut self, now: Timestamp) -> Vec<Rejected<RequestId>> {
        let real = self.real.expire(now);
        let ids: Vec<_> = real.iter().map(|rejected| rejected.payload).collect();
        assert_eq!(ids, self.plain.expire(now), "expire({now:?})");
        real
    }

    fn sweep(&mut self, gone: &dyn Fn(&RequestId) -> bool) -> Vec<Rejected<RequestId>> {
        self.plain.sweep(gone);
        let swept = self.real.sweep(gone);
        assert_eq!(self.in_flight(), self.plain.in_flight());
        swept
    }

    fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        let due = self.real.due(now, idle);
        let expected = if idle.is_empty() { Vec::new() } else { self.plain.due(now) };
        assert_eq!(due.is_some(), !expected.is_empty(), "due({now:?})");
        self.expected.replace(expected);
        due
    }

    fn take(&mut self, due: DueBatch) -> Batch<RequestId> {
        let batch = self.real.take(due);
        let ids: Vec<_> = requests(&batch).collect();
        assert_eq!(ids, *self.expected.borrow(), "take");
        self.plain.take(&ids);
        batch
    }

    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let wakeup = self.real.next_wakeup(now);
        assert_eq!(wakeup, self.plain.next_wakeup(now), "next_wakeup({now:?})");
        wakeup
    }

    fn drain(&mut self) {
        self.real.drain();
        self.plain.drain();
    }

    fn in_flight(&self) -> usize {
        self.real.in_flight()
    }
}

/// `with_cases` alone would not listen to the environment.
fn cases() -> u32 {
    env::var("PROPTEST_CASES").map_or(700, |cases| cases.parse().expect("PROPTEST_CASES is a number"))
}

prop_compose! {
    fn arrival()(
        gap in prop_oneof![2 => Just(0), 3 => 0..60u64, 1 => 0..600u64],
        clock_lag in prop_oneof![4 => Just(0), 1 => 0..=MAX_CLOCK_LAG],
        batch_size in prop_oneof![3 => Just(1), 3 => 0..5u32, 1 => 0..20u32],
        priority in prop_oneof![2 => Just(0), 4 => 0..6u64, 1 => any::<u64>()],
        timeout in prop::option::of(0..400u64),
        shape_key in prop_oneof![6 => Just(0), 1 => 0..3u64],
        cancelled_after in prop::option::weighted(0.15, 0..500u64),
        runs_for in prop_oneof![1 => Just(0), 4 => 1..300u64],
        volume in 0..8u32,
    ) -> Arrival {
        let timeout = timeout.map(Duration::from_micros);
        let meta = Meta { batch_size, priority, timeout, shape_key, sequence: None };
        Arrival { gap, clock_lag, meta, cancelled_after, runs_for, volume }
    }
}

prop_compose! {
    fn load()(
        arrivals in prop::collection::vec(arrival(), 0..60),
        instances in 1..4usize,
        drained_after in prop_oneof![3 => Just(usize::MAX), 1 => 0..60usize],
    ) -> Load {
        Load { arrivals, instances, drained_after }
    }
}

prop_compose! {
    fn queue_policy()(
        default_timeout in prop::option::of(0..500u64),
        delays in any::<bool>(),
        allow_timeout_override in any::<bool>(),
        max_queue_size in prop::option::of(1..10usize),
    ) -> QueuePolicy {
        QueuePolicy {
            default_timeout: default_timeout.map(Duration::from_micros),
            timeout_action: if delays { TimeoutAction::Delay } else { TimeoutAction::Reject },
            allow_timeout_override,
            max_queue_size: max_queue_size.and_then(NonZero::new),
        }
    }
}

prop_compose! {
    fn settings()(
        max_batch_size in 0..10u32,
        preferred in prop::collection::btree_set(1..10u32, 0..4),
        max_queue_delay in prop_oneof![1 => Just(0), 3 => 0..400u64],
        priority_levels in prop_oneof![2 => Just(0), 2 => 1..5u64, 1 => Just(u64::MAX)],
        default_priority_level in 1..5u64,
        default_queue_policy in queue_policy(),
        priority_queue_policies in prop::collection::btree_map(1..5u64, queue_policy(), 0..3),
        hold_until_queued in prop_oneof![4 => Just(0), 1 => 0..10usize],
    ) -> DynamicBatching {
        let default_priority_level = default_priority_level.min(priority_levels);
        DynamicBatching {
            max_batch_size,
            preferred_batch_sizes: preferred.into_iter().filter(|&size| size <= max_batch_size).collect(),
            max_queue_delay: Duration::from_micros(max_queue_delay),
            preserve_ordering: false,
            priority_levels,
            default_priority_level,
            default_queue_policy,
            priority_queue_policies: if priority_levels == 0 { BTreeMap::new() } else { priority_queue_policies },
            hold_until_queued,
        }
    }
}

/// A limit that some requests break already alone.
fn limit() -> impl proptest::strategy::Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Alone), 4 => (0..20u32).prop_map(Limit::Volume)]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_dynamic_batcher_keeps_its_promises(config in settings(), load in load()) {
        let scheduler = Box::new(DynamicBatcher::new(config.clone()));
        History::play(scheduler, config, BatchLimit::default(), &load);
    }

    #[test]
    fn the_dynamic_batcher_decides_as_described(config in settings(), load in load()) {
        let real = DynamicBatcher::new(config.clone());
        let plain = Reference::new(config.clone(), BatchLimit::default());
        let scheduler = Box::new(Both { real, plain, expected: RefCell::default() });
        History::play(scheduler, config, BatchLimit::default(), &load);
    }

    #[test]
    fn the_dynamic_batcher_keeps_to_a_join_rule(config in settings(), limit in limit(), load in load()) {
        let batch_limit = BatchLimit::new(limit);
        let rule = batch_limit.rule().expect("there is a limit");
        let real = DynamicBatcher::new(config.clone()).with_batch_filter(rule);
        let plain = Reference::new(config.clone(), batch_limit.clone());
        let scheduler = Box::new(Both { real, plain, expected: RefCell::default() });
        History::play(scheduler, config, batch_limit, &load);
    }

    #[test]
    fn unbatched_scheduling_keeps_its_promises(load in load()) {
        let config = DynamicBatching { max_batch_size: 1, ..DynamicBatching::default() };
        let history = History::play(Box::new(Unbatched::new()), config, BatchLimit::default(), &load);
        let may = [None, Some(Rejection::Cancelled), Some(Rejection::Draining)];
        prop_assert!(history.gone.values().all(|reason| may.contains(reason)));
    }
}
