//! Tests a dynamic batcher whose instance waits for resources: its batches grow until the limiter grants the
//! resources.
use std::time::Duration;

use scheduling::{
    Claim, DynamicBatcher, DynamicBatching, EntryId, RateLimiter, Rejection, Scheduler, SchedulingAttributes,
    Timestamp,
};

use super::{needs, register, unlimited};

fn batching(hold_until_queued: usize) -> Scheduler<u32> {
    Scheduler::Dynamic(DynamicBatcher::new(DynamicBatching {
        max_batch_size: 4,
        preferred_batch_sizes: [1, 2, 3, 4].into(),
        hold_until_queued,
        ..DynamicBatching::default()
    }))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

#[test]
fn every_batch_is_full_if_requests_come_faster_than_batches_run() {
    let mut limiter = unlimited();
    let claimant = register(&mut limiter, &needs(&[("r", 1)]));
    let mut scheduler = batching(4);
    let mut sizes = Vec::new();
    let mut ends = None;
    for millis in (0..).step_by(100).take_while(|&millis| millis < 25_000) {
        let now = at(millis);
        let ended = ends.take_if(|ends| *ends <= millis).is_some();
        if millis < 8_000 {
            scheduler.enqueue(now, SchedulingAttributes::default(), 0).expect("the queue has no limit");
        }
        let idle: &[_] = if ends.is_none() { &[0] } else { &[] };
        let Some(due) = scheduler.due(now, idle) else {
            if ended {
                assert!(limiter.release(claimant).is_empty());
            }
            continue;
        };
        let claim = if ended { limiter.renew(claimant).0 } else { limiter.claim(claimant) };
        assert_eq!(claim, Claim::Granted);
        sizes.push(scheduler.take(due).rows.len());
        ends = Some(millis + 1_000);
    }
    assert_eq!(sizes, [4; 20]);
}

/// A batcher whose instance waits, because another claimant holds the resources.
fn waiting() -> (RateLimiter, scheduling::Claimant, Scheduler<u32>, EntryId) {
    let mut limiter = unlimited();
    let [holder, claimant] = [1, 1].map(|count| register(&mut limiter, &needs(&[("r", count)])));
    assert_eq!(limiter.claim(holder), Claim::Granted);
    let mut scheduler = batching(0);
    let entry = scheduler.enqueue(at(0), SchedulingAttributes::default(), 0).expect("the queue has no limit");
    assert!(scheduler.due(at(0), &[0]).is_some());
    assert_eq!(limiter.claim(claimant), Claim::Queued);
    (limiter, holder, scheduler, entry)
}

#[test]
fn a_batch_grows_while_it_waits_for_resources() {
    let (mut limiter, holder, mut scheduler, _) = waiting();
    for id in 1..=2 {
        scheduler.enqueue(at(1), SchedulingAttributes::default(), id).expect("the queue has no limit");
    }
    assert!(!limiter.release(holder).is_empty());
    let due = scheduler.due(at(2), &[0]).expect("three requests wait");
    assert_eq!(scheduler.take(due).rows.len(), 3);
}

#[test]
fn what_waits_for_resources_can_still_be_cancelled() {
    let (_, _, mut scheduler, entry) = waiting();
    let cancelled = scheduler.cancel(entry);
    assert_eq!(
        cancelled.into_iter().map(|rejected| rejected.reason).collect::<Vec<_>>(),
        [Rejection::Cancelled]
    );
    assert!(scheduler.due(at(0) + Duration::from_secs(1), &[0]).is_none());
}
