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
fn waiting_for_an_earlier_request_of_the_same_sequence_is_told_apart() {
    let mut scheduler = Scheduler::Sequence(SequenceBatcher::new(SequenceBatching::default(), 1));
    let step = |id, start, end| {
        let id = NonZeroU64::new(id).map(SequenceId::Number);
        SchedulingAttributes {
            sequence: SequencePosition { id, start, end },
            ..SchedulingAttributes::default()
        }
    };
    let run = |scheduler: &mut Scheduler<u32>, from: u64, to: u64| {
        assert!(scheduler.expire(at(from)).is_empty());
        let due = scheduler.due(at(from), &[0]).expect("the slot has a request");
        scheduler.take(due);
        if to == 10 {
            // They arrive while it runs. The second sequence waits for a slot.
            enqueue(scheduler, 2, step(7, false, false), 2);
            enqueue(scheduler, 3, step(8, true, false), 3);
            enqueue(scheduler, 6, step(7, false, true), 4);
            enqueue(scheduler, 7, step(8, false, true), 5);
        }
        scheduler.released(at(to), 0, 0);
        scheduler.waited_for_own_sequence().as_nanos()
    };
    enqueue(&mut scheduler, 1, step(7, true, false), 1);
    assert_eq!(run(&mut scheduler, 1, 10), 8 + 4);
    assert_eq!(run(&mut scheduler, 12, 20), 12 + 8, "from 10 to 12 the instance did something else");
    assert_eq!(run(&mut scheduler, 20, 30), 20, "no request waited for this one");
    assert_eq!(run(&mut scheduler, 30, 35), 20 + 5, "in the slot, the second sequence waits for itself");
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
