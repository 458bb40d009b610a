//! Tests the promises of the scheduler at every step, for every policy and random loads, on a virtual clock.
//!
//! The test shrinks a failing history and prints it with the seed that repeats it. `PROPTEST_CASES=100000` tries more
//! histories than the default.
use std::{collections::BTreeMap, env, num::NonZero, time::Duration};

use proptest::prelude::*;
use scheduling::{
    DynamicBatcher, DynamicBatching, QueuePolicy, Rejection, Scheduler, SchedulingAttributes, TimeoutAction,
    Unbatched,
};

use crate::support::{
    batch_limit::{BatchLimit, Limit},
    reference::Reference,
    simulation::{Arrival, History, Load, MAX_CLOCK_LAG},
    subject::Subject,
};

/// `with_cases` alone would ignore the environment.
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
        let attributes =
            SchedulingAttributes { batch_size, priority, timeout, shape_key, ..SchedulingAttributes::default() };
        Arrival { gap, clock_lag, attributes, cancelled_after, runs_for, volume }
    }
}

prop_compose! {
    fn load()(
        arrivals in prop::collection::vec(arrival(), 0..60),
        instances in 1..4usize,
        drained_after in prop_oneof![3 => Just(usize::MAX), 1 => 0..60usize],
        delay_ended_after in prop_oneof![3 => Just(usize::MAX), 1 => 0..60usize],
    ) -> Load {
        Load { arrivals, instances, drained_after, delay_ended_after }
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

/// A limit that some requests already exceed alone.
fn limit() -> impl proptest::strategy::Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Alone), 4 => (0..20u32).prop_map(Limit::Volume)]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_dynamic_batcher_keeps_its_promises(config in settings(), load in load()) {
        let real = DynamicBatcher::new(config.clone());
        let subject = Subject::new(Scheduler::Dynamic(real), None);
        History::play(subject, config, BatchLimit::default(), &load);
    }

    #[test]
    fn the_dynamic_batcher_decides_as_described(config in settings(), load in load()) {
        let real = DynamicBatcher::new(config.clone());
        let plain = Reference::new(config.clone(), BatchLimit::default());
        let subject = Subject::new(Scheduler::Dynamic(real), Some(plain));
        History::play(subject, config, BatchLimit::default(), &load);
    }

    #[test]
    fn the_dynamic_batcher_keeps_to_a_filter(config in settings(), limit in limit(), load in load()) {
        let batch_limit = BatchLimit::new(limit);
        let filter = batch_limit.filter().expect("there is a limit");
        let real = DynamicBatcher::new(config.clone()).with_filter(filter);
        let plain = Reference::new(config.clone(), batch_limit.clone());
        let subject = Subject::new(Scheduler::Dynamic(real), Some(plain));
        History::play(subject, config, batch_limit, &load);
    }

    #[test]
    fn unbatched_scheduling_keeps_its_promises(load in load()) {
        let config = DynamicBatching { max_batch_size: 1, ..DynamicBatching::default() };
        let subject = Subject::new(Scheduler::Unbatched(Unbatched::new()), None);
        let history = History::play(subject, config, BatchLimit::default(), &load);
        let may = [None, Some(Rejection::Cancelled), Some(Rejection::Draining)];
        prop_assert!(history.gone.values().all(|reason| may.contains(reason)));
    }
}
