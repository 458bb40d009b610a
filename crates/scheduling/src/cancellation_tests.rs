//! A cancellation costs steps in proportion to what it cancels. The tests count steps for each queue, at two lengths
//! and in three orders.
use std::{num::NonZeroU64, time::Duration};

use crate::{
    DirectStrategy, DynamicBatcher, DynamicBatching, EntryId, OldestStrategy, QueuePolicy, Rejection,
    Scheduler, SchedulingAttributes, SequenceBatcher, SequenceBatching, SequenceId, SequencePosition,
    SequenceStrategy, TimeoutAction, Timestamp, Unbatched, cost_counter,
};

const NOW: Timestamp = Timestamp::from_nanos(1_000_000);

/// A scheduler, the attributes of request `n`, and an action that follows all arrivals.
struct Case {
    name: &'static str,
    scheduler: Scheduler<usize>,
    attributes: fn(usize) -> SchedulingAttributes,
    then: fn(&mut Scheduler<usize>),
    /// Whether an instance is idle all the time.
    idle: bool,
}

fn dynamic(config: DynamicBatching) -> Scheduler<usize> {
    Scheduler::Dynamic(DynamicBatcher::new(DynamicBatching {
        max_batch_size: 8,
        preferred_batch_sizes: [8].into(),
        max_queue_delay: Duration::from_secs(1),
        ..config
    }))
}

fn timeouts(timeout_action: TimeoutAction, allow_timeout_override: bool) -> DynamicBatching {
    let default_queue_policy = QueuePolicy {
        default_timeout: Some(Duration::from_secs(100)),
        timeout_action,
        allow_timeout_override,
        max_queue_size: None,
    };
    DynamicBatching { default_queue_policy, ..DynamicBatching::default() }
}

fn sequences(strategy: SequenceStrategy) -> Scheduler<usize> {
    let max_sequence_idle = Duration::from_secs(1_000);
    let config =
        SequenceBatching { strategy, max_batch_size: 8, max_sequence_idle, ..SequenceBatching::default() };
    Scheduler::Sequence(SequenceBatcher::new(config, 4))
}

fn direct() -> SequenceStrategy {
    let max_queue_delay = Duration::from_secs(1);
    SequenceStrategy::Direct(DirectStrategy { max_queue_delay, minimum_slot_utilization: 1.0 })
}

fn oldest(max_candidate_sequences: u32) -> SequenceStrategy {
    SequenceStrategy::Oldest(OldestStrategy {
        max_candidate_sequences,
        preferred_batch_sizes: [8].into(),
        max_queue_delay: Duration::from_secs(1),
        preserve_ordering: false,
    })
}

fn plain(_: usize) -> SchedulingAttributes {
    SchedulingAttributes::default()
}

/// Each request asks for another timeout. Later requests ask for shorter timeouts than earlier ones.
fn with_timeout(request: usize) -> SchedulingAttributes {
    let timeout = Some(Duration::from_nanos(1_000_000 - request as u64));
    SchedulingAttributes { timeout, ..SchedulingAttributes::default() }
}

fn with_level(request: usize) -> SchedulingAttributes {
    SchedulingAttributes { priority: 1 + request as u64, ..with_timeout(request) }
}

fn sequence_of(number: usize, start: bool) -> SchedulingAttributes {
    let id = NonZeroU64::new(1 + number as u64).map(SequenceId::Number);
    SchedulingAttributes {
        sequence: SequencePosition { id, start, end: false },
        ..SchedulingAttributes::default()
    }
}

fn own_sequence(request: usize) -> SchedulingAttributes {
    sequence_of(request, true)
}

/// Four requests for each sequence.
fn shared_sequence(request: usize) -> SchedulingAttributes {
    sequence_of(request / 4, request.is_multiple_of(4))
}

fn nothing(_: &mut Scheduler<usize>) {}

fn become_late(scheduler: &mut Scheduler<usize>) {
    assert!(scheduler.expire(NOW + Duration::from_secs(1_000)).is_empty(), "they are delayed");
}

fn cases() -> Vec<Case> {
    let levels = DynamicBatching {
        priority_levels: u64::MAX,
        default_priority_level: 1,
        ..timeouts(TimeoutAction::Reject, true)
    };
    let case = |name, scheduler, attributes| Case { name, scheduler, attributes, then: nothing, idle: false };
    vec![
        case("unbatched", Scheduler::Unbatched(Unbatched::new()), plain),
        case("dynamic", dynamic(DynamicBatching::default()), plain),
        Case {
            idle: true,
            ..case("dynamic with an idle instance", dynamic(timeouts(TimeoutAction::Reject, false)), plain)
        },
        case("different timeouts", dynamic(timeouts(TimeoutAction::Reject, true)), with_timeout),
        Case {
            then: become_late,
            ..case("delayed", dynamic(timeouts(TimeoutAction::Delay, true)), with_timeout)
        },
        case("a level for each request", dynamic(levels), with_level),
        case("direct, a sequence for each request", sequences(direct()), own_sequence),
        case("direct, shared sequences", sequences(direct()), shared_sequence),
        case("oldest, a sequence for each request", sequences(oldest(8)), own_sequence),
        case("oldest, shared sequences", sequences(oldest(8)), shared_sequence),
        case("oldest, a slot for each request", sequences(oldest(1 << 16)), own_sequence),
        Case { idle: true, ..case("oldest with idle instances", sequences(oldest(1 << 16)), own_sequence) },
    ]
}

/// Does what a driver does after each event, but takes no batch.
fn settle(scheduler: &mut Scheduler<usize>, idle: bool) {
    assert!(scheduler.expire(NOW).is_empty());
    let idle: &[_] = if idle { &[0, 1, 2, 3] } else { &[] };
    let _ = scheduler.due(NOW, idle);
    scheduler.next_wakeup(NOW);
    scheduler.take_restarts();
}

/// Puts entries into the order in which they are cancelled.
type Order = fn(Vec<EntryId>) -> Vec<EntryId>;

/// A permutation that jumps between distant entries.
fn shuffled(mut entries: Vec<EntryId>) -> Vec<EntryId> {
    let mut seed = 7_u64;
    for index in (1..entries.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        entries.swap(index, (seed >> 33) as usize % (index + 1));
    }
    entries
}

/// Steps for each cancelled request, when one of two clients cancels all of its requests. The requests of that client
/// either alternate with those of the other client, or form one block between them. In the second case the other
/// client has the first and the last requests.
fn cost(mut case: Case, count: usize, order: Order, in_turns: bool) -> f64 {
    let (mut mine, mut others) = (Vec::new(), 0);
    for request in 0..2 * count {
        let entry = case.scheduler.enqueue(NOW, (case.attributes)(request), request);
        let entry = entry.expect("there is no limit");
        // A sequence belongs to one client.
        let is_mine = if in_turns { (request / 4).is_multiple_of(2) } else { (4..count).contains(&request) };
        if is_mine { mine.push(entry) } else { others += 1 }
    }
    (case.then)(&mut case.scheduler);
    settle(&mut case.scheduler, case.idle);
    let cancelled = mine.len();
    let entries = order(mine);
    let mut rejected = 0;
    let steps = cost_counter::of(|| {
        for entry in entries {
            let is_cancelled = case.scheduler.cancel(entry);
            assert!(is_cancelled.iter().all(|is_cancelled| is_cancelled.reason == Rejection::Cancelled));
            rejected += is_cancelled.len();
            settle(&mut case.scheduler, case.idle);
        }
    });
    assert_eq!(rejected, cancelled, "{}: all of them were cancelled", case.name);
    assert_eq!(case.scheduler.queued(), others, "{}: nobody else was", case.name);
    steps as f64 / cancelled as f64
}

/// Every case takes a number of steps for each request that grows with the logarithm of the queue length.
fn check(order_name: &str, order: Order) {
    for (count, in_turns) in [(1_024, true), (1_024, false), (16_384, true)] {
        // Each of at most four instances looks at a batch of 8 requests and at one more. The other steps are
        // searches.
        let most = f64::from(4 * 9) + 4.0 * (count as f64).log2();
        for case in cases() {
            let name = case.name;
            let cost = cost(case, count, order, in_turns);
            assert!(cost <= most, "{name}, {count} {order_name}: {cost} steps each, not {most}");
        }
    }
}

#[test]
fn cancelling_everything_forward_takes_a_logarithm_of_steps_for_each_request() {
    check("forward", |entries| entries);
}

#[test]
fn cancelling_everything_backward_takes_a_logarithm_of_steps_for_each_request() {
    check("backward", |mut entries| {
        entries.reverse();
        entries
    });
}

#[test]
fn cancelling_everything_at_random_takes_a_logarithm_of_steps_for_each_request() {
    check("at random", shuffled);
}
