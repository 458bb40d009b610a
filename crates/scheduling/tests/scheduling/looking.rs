//! What somebody who only looks sees of the waiting requests, the slots and the resources.
use std::{collections::BTreeSet, num::NonZeroU64, time::Duration};

use scheduling::{
    Capacities, DynamicBatcher, DynamicBatching, InstanceDevice, Need, QueuePolicy, RateLimiter, Resources,
    Scheduler, SchedulingAttributes, SequenceBatcher, SequenceBatching, SequenceId, SequencePosition,
    TimeoutAction, Timestamp, Unbatched,
};

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn payloads(scheduler: &Scheduler<u32>) -> Vec<u32> {
    scheduler.waiting().map(|entry| entry.payload).collect()
}

fn enqueue(scheduler: &mut Scheduler<u32>, now: u64, attributes: SchedulingAttributes, payload: u32) {
    assert!(scheduler.enqueue(at(now), attributes, payload).is_ok(), "{payload} is accepted");
}

#[test]
fn an_empty_queue_has_no_oldest_request() {
    let schedulers = [
        Scheduler::Unbatched(Unbatched::<u32>::new()),
        Scheduler::Dynamic(DynamicBatcher::new(DynamicBatching::default())),
        Scheduler::Sequence(SequenceBatcher::new(SequenceBatching::default(), 1)),
    ];
    for scheduler in schedulers {
        assert_eq!((scheduler.oldest_arrival(), scheduler.backlogged()), (None, 0));
        assert!(payloads(&scheduler).is_empty());
    }
}

#[test]
fn the_oldest_request_of_all_levels_is_found_also_if_it_is_late() {
    let late = QueuePolicy {
        default_timeout: Some(Duration::from_nanos(5)),
        timeout_action: TimeoutAction::Delay,
        ..QueuePolicy::default()
    };
    let mut scheduler = Scheduler::Dynamic(DynamicBatcher::new(DynamicBatching {
        max_batch_size: 8,
        preferred_batch_sizes: BTreeSet::from([8]),
        priority_levels: 3,
        default_priority_level: 3,
        default_queue_policy: late,
        ..DynamicBatching::default()
    }));
    let level = |priority| SchedulingAttributes { priority, ..SchedulingAttributes::default() };
    enqueue(&mut scheduler, 10, level(2), 1);
    assert!(scheduler.expire(at(20)).is_empty(), "it is delayed");
    enqueue(&mut scheduler, 21, level(1), 2);
    enqueue(&mut scheduler, 22, level(2), 3);
    assert_eq!(scheduler.oldest_arrival(), Some(at(10)));
    assert_eq!(payloads(&scheduler), [2, 3, 1]);
}

#[test]
fn requests_wait_in_slots_and_in_the_backlog() {
    let mut scheduler = Scheduler::Sequence(SequenceBatcher::new(SequenceBatching::default(), 1));
    let step = |id, start| {
        let id = NonZeroU64::new(id).map(SequenceId::Number);
        SchedulingAttributes {
            sequence: SequencePosition { id, start, end: false },
            ..SchedulingAttributes::default()
        }
    };
    enqueue(&mut scheduler, 1, step(7, true), 1);
    enqueue(&mut scheduler, 2, step(8, true), 2);
    enqueue(&mut scheduler, 3, step(8, false), 3);
    assert_eq!(payloads(&scheduler), [1, 2, 3]);
    assert_eq!((scheduler.oldest_arrival(), scheduler.backlogged()), (Some(at(1)), 1));
    let due = scheduler.due(at(4), &[0]).expect("the slot has a request");
    assert_eq!(scheduler.take(due).rows.len(), 1);
    assert_eq!((scheduler.oldest_arrival(), payloads(&scheduler)), (Some(at(2)), vec![2, 3]));
}

#[test]
fn resources_show_what_is_in_use() {
    let mut limiter = RateLimiter::new(Capacities::default());
    let need = |name: &str, global, count| Need { name: name.to_owned(), global, count };
    let needs =
        Resources { needs: vec![need("R", true, 2), need("S", false, 3)], device: InstanceDevice::Cpu };
    let priority = std::num::NonZeroU32::MIN;
    let (one, grants) = limiter.register(&needs, priority).unwrap();
    assert!(grants.is_empty());
    let (two, _) = limiter.register(&needs, priority).unwrap();
    let _ = limiter.claim(one);
    let _ = limiter.claim(two);
    let shown: Vec<_> =
        limiter.resources().map(|one| (one.name.to_owned(), one.device, one.used, one.capacity)).collect();
    assert_eq!(shown, [("R".to_owned(), None, 2, 2), ("S".to_owned(), Some(InstanceDevice::Cpu), 3, 3)]);
    assert_eq!(limiter.queued(), 1);
}
