//! A batch that has left the queue but has not begun takes up the requests that come meanwhile.
#![expect(clippy::unwrap_used, reason = "tests fail by it")]
use std::{collections::BTreeSet, num::NonZero, time::Duration};

use proptest::prelude::*;
use scheduling::{
    BatchFilter, DynamicBatcher, DynamicBatching, QueuePolicy, Row, ScheduledBatch, Scheduler,
    SchedulingAttributes, Timestamp,
};

type Request = usize;

fn at(microseconds: u64) -> Timestamp {
    Timestamp::default() + Duration::from_micros(microseconds)
}

fn with_rows(batch_size: u32) -> SchedulingAttributes {
    SchedulingAttributes { batch_size, ..SchedulingAttributes::default() }
}

fn config(max_batch_size: u32, preferred: &[u32], delay: u64) -> DynamicBatching {
    DynamicBatching {
        max_batch_size,
        preferred_batch_sizes: preferred.iter().copied().collect(),
        max_queue_delay: Duration::from_micros(delay),
        ..DynamicBatching::default()
    }
}

/// The batch that is due for the only instance.
fn taken(scheduler: &mut Scheduler<Request>, now: Timestamp) -> Option<ScheduledBatch<Request>> {
    let due = scheduler.due(now, &[0])?;
    Some(scheduler.take(due))
}

fn requests(batch: &ScheduledBatch<Request>) -> Vec<Request> {
    let request = |row: &Row<Request>| match row {
        Row::Request { entry, .. } => Some(entry.payload),
        Row::Padding => None,
    };
    batch.rows.iter().filter_map(request).collect()
}

/// A batch with the request 0 has left. Then these further requests come, 1 first, and the batch grows.
fn grown(mut scheduler: Scheduler<Request>, further: &[SchedulingAttributes]) -> (Vec<Request>, usize) {
    scheduler.enqueue(at(0), with_rows(1), 0).unwrap();
    let mut batch = taken(&mut scheduler, at(0)).expect("no request waits for others");
    for (attributes, request) in further.iter().zip(1..) {
        scheduler.enqueue(at(1), attributes.clone(), request).unwrap();
    }
    let before = batch.rows.len();
    let has_grown = scheduler.grow(at(2), &mut batch);
    assert_eq!(has_grown, batch.rows.len() > before);
    (requests(&batch), scheduler.queued())
}

fn dynamic(config: DynamicBatching) -> Scheduler<Request> {
    Scheduler::Dynamic(DynamicBatcher::new(config))
}

#[test]
fn a_batch_grows_to_the_largest_size_and_no_further() {
    let ones = [with_rows(1), with_rows(1), with_rows(1), with_rows(1)];
    assert_eq!(grown(dynamic(config(4, &[4], 0)), &ones[..2]), (vec![0, 1, 2], 0));
    assert_eq!(grown(dynamic(config(4, &[4], 0)), &ones), (vec![0, 1, 2, 3], 1));
    assert_eq!(grown(dynamic(config(4, &[4], 0)), &[with_rows(4), with_rows(1)]), (vec![0], 2));
    assert_eq!(grown(dynamic(config(4, &[4], 0)), &[]), (vec![0], 0));
}

#[test]
fn a_batch_of_a_preferred_size_grows_only_to_a_preferred_size() {
    let ones = [with_rows(1), with_rows(1), with_rows(1)];
    assert_eq!(grown(dynamic(config(8, &[1, 4], 10)), &ones[..2]), (vec![0], 2));
    assert_eq!(grown(dynamic(config(8, &[1, 4], 10)), &ones), (vec![0, 1, 2, 3], 0));
}

#[test]
fn a_request_of_another_shape_does_not_join() {
    let other = SchedulingAttributes { shape_key: 7, ..with_rows(1) };
    assert_eq!(grown(dynamic(config(4, &[4], 0)), &[other, with_rows(1)]), (vec![0], 2));
}

#[test]
fn a_late_request_does_not_join() {
    let late = QueuePolicy {
        default_timeout: Some(Duration::from_micros(1)),
        max_queue_size: NonZero::new(4),
        ..QueuePolicy::default()
    };
    let mut scheduler = dynamic(DynamicBatching { default_queue_policy: late, ..config(4, &[4], 0) });
    scheduler.enqueue(at(0), with_rows(1), 0).unwrap();
    let mut batch = taken(&mut scheduler, at(0)).unwrap();
    scheduler.enqueue(at(1), with_rows(1), 1).unwrap();
    scheduler.enqueue(at(5), with_rows(1), 2).unwrap();
    assert_eq!(scheduler.expire(at(5)).len(), 1);
    assert!(scheduler.grow(at(5), &mut batch));
    assert_eq!(requests(&batch), [0, 2]);
}

/// Admits everything.
struct Open;

impl BatchFilter<Request> for Open {
    fn admit(&mut self, _: &Request) -> bool {
        true
    }

    fn reset(&mut self) {}
}

#[test]
fn a_filter_that_has_forgotten_the_batch_lets_nobody_join() {
    let filtered = DynamicBatcher::new(config(4, &[4], 0)).with_filter(Box::new(Open));
    assert_eq!(grown(Scheduler::Dynamic(filtered), &[with_rows(1)]), (vec![0], 1));
}

#[test]
fn requests_that_run_alone_stay_alone() {
    assert_eq!(grown(Scheduler::Unbatched(scheduling::Unbatched::new()), &[with_rows(1)]), (vec![0], 1));
}

fn arrivals() -> impl proptest::strategy::Strategy<Value = Vec<(u64, SchedulingAttributes)>> {
    let arrival = (0..30u64, 0..6u32, prop_oneof![6 => Just(0), 1 => 0..2u64]).prop_map(
        |(gap, batch_size, shape_key)| (gap, SchedulingAttributes { shape_key, ..with_rows(batch_size) }),
    );
    prop::collection::vec(arrival, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_batch_grows_as_if_it_left_only_now(
        max_batch_size in 1..10u32,
        preferred in prop::collection::btree_set(1..10u32, 0..4),
        delay in prop_oneof![1 => Just(0), 2 => 0..60u64],
        delay_ends in any::<bool>(),
        arrivals in arrivals(),
        later in 0..60u64,
    ) {
        let preferred: BTreeSet<_> = preferred.into_iter().filter(|&size| size <= max_batch_size).collect();
        let preferred: Vec<_> = preferred.into_iter().collect();
        let mut scheduler = dynamic(config(max_batch_size, &preferred, delay));
        let mut twin = dynamic(config(max_batch_size, &preferred, delay));
        let (mut batch, mut now) = (None, at(0));
        for ((gap, attributes), request) in arrivals.into_iter().zip(0..) {
            now = now + Duration::from_micros(gap);
            scheduler.enqueue(now, attributes.clone(), request).unwrap();
            twin.enqueue(now, attributes, request).unwrap();
            if batch.is_none() {
                batch = taken(&mut scheduler, now);
            }
        }
        now = now + Duration::from_micros(later);
        if delay_ends {
            scheduler.end_queue_delay();
            twin.end_queue_delay();
        }
        if let Some(mut batch) = batch {
            let before = requests(&batch);
            scheduler.grow(now, &mut batch);
            let left_now = taken(&mut twin, now).map(|batch| requests(&batch)).unwrap_or_default();
            let expected = if left_now.len() > before.len() { left_now } else { before };
            prop_assert_eq!(requests(&batch), expected);
        }
    }
}
