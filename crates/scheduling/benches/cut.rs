//! Measures the cost of a request in the scheduler, at several lengths of the queue.
//!
//! In each round as many requests arrive as one batch takes. After each request the bench calls `due` and
//! `next_wakeup`, as the driver does. Then it takes the batch, so that the queue keeps its length.
use std::{hint::black_box, num::NonZeroU64, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use scheduling::{
    DirectStrategy, DynamicBatcher, DynamicBatching, OldestStrategy, QueuePolicy, Row, Scheduler,
    SchedulingAttributes, SequenceBatcher, SequenceBatching, SequenceId, SequencePosition, SequenceStrategy,
    TimeoutAction, Timestamp, Unbatched,
};

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

/// A payload as large as the engine's.
type Payload = [u64; 4];

fn round(scheduler: &mut Scheduler<Payload>, batch_size: u32) {
    for _ in 0..batch_size {
        assert!(scheduler.enqueue(NOW, SchedulingAttributes::default(), black_box([1; 4])).is_ok());
        black_box(scheduler.expire(NOW));
        black_box(scheduler.due(NOW, &[]));
        black_box(scheduler.next_wakeup(NOW));
    }
    let due = scheduler.due(NOW, &[0]).expect("there is enough for a batch");
    black_box(scheduler.take(due));
}

fn batching(max_batch_size: u32) -> DynamicBatching {
    DynamicBatching {
        max_batch_size,
        preferred_batch_sizes: [max_batch_size].into(),
        max_queue_delay: Duration::from_millis(1),
        ..DynamicBatching::default()
    }
}

fn overridable(max_batch_size: u32) -> DynamicBatching {
    let default_queue_policy = QueuePolicy {
        default_timeout: Some(Duration::from_secs(1)),
        timeout_action: TimeoutAction::Reject,
        allow_timeout_override: true,
        max_queue_size: None,
    };
    DynamicBatching { default_queue_policy, ..batching(max_batch_size) }
}

fn rounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round");
    // The length includes one arriving request. At length 1, the requests that arrive in a round are those that
    // leave.
    for length in [1, 64, 10_000] {
        let mut measure = |name: &str, batch_size: u32, mut scheduler: Scheduler<Payload>| {
            for _ in 1..length {
                assert!(scheduler.enqueue(NOW, SchedulingAttributes::default(), [0; 4]).is_ok());
            }
            group.throughput(Throughput::Elements(u64::from(batch_size)));
            group.bench_function(BenchmarkId::new(name, length), |bencher| {
                bencher.iter(|| round(&mut scheduler, batch_size));
            });
        };
        measure("unbatched", 1, Scheduler::Unbatched(Unbatched::new()));
        for batch_size in [1, 8, 64] {
            measure(
                &format!("dynamic_{batch_size}"),
                batch_size,
                Scheduler::Dynamic(DynamicBatcher::new(batching(batch_size))),
            );
        }
        measure("overridable_timeouts_8", 8, Scheduler::Dynamic(DynamicBatcher::new(overridable(8))));
    }
    group.finish();
}
/// One request of each of these sequences arrives. The backend releases each batch after it has left.
fn sequence_round(scheduler: &mut Scheduler<Payload>, ids: &[u64], batch_size: usize) {
    for batch in ids.chunks(batch_size) {
        for &id in batch {
            let attributes =
                SchedulingAttributes { sequence: step(id, false), ..SchedulingAttributes::default() };
            assert!(scheduler.enqueue(NOW, attributes, black_box([1; 4])).is_ok());
            black_box(scheduler.expire(NOW));
            black_box(scheduler.due(NOW, &[]));
            black_box(scheduler.next_wakeup(NOW));
        }
        let due = scheduler.due(NOW, &[0, 1, 2, 3]).expect("there is enough for a batch");
        let batch = scheduler.take(due);
        for row in black_box(&batch).rows.iter() {
            if let Row::Request { slot: Some(slot), .. } = row {
                scheduler.released(NOW, batch.instance, *slot);
            }
        }
    }
}

fn step(id: u64, start: bool) -> SequencePosition {
    SequencePosition { id: NonZeroU64::new(id).map(SequenceId::Number), start, end: false }
}

/// Compare with `round/dynamic_8`. This bench does the same with requests of sequences, at several lengths of the
/// backlog. All slots are occupied, 8 on each of four instances.
fn sequence_rounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sequences");
    let max_queue_delay = Duration::from_millis(1);
    let direct = SequenceStrategy::Direct(DirectStrategy { max_queue_delay, minimum_slot_utilization: 1.0 });
    let oldest = SequenceStrategy::Oldest(OldestStrategy {
        max_candidate_sequences: 8,
        preferred_batch_sizes: [8].into(),
        max_queue_delay,
        preserve_ordering: false,
    });
    for (name, strategy) in [("direct_8", direct), ("oldest_8", oldest)] {
        for backlog in [0, 1_000, 100_000] {
            let config = SequenceBatching {
                strategy: strategy.clone(),
                max_batch_size: 8,
                max_sequence_idle: Duration::from_secs(3_600),
                ..SequenceBatching::default()
            };
            let mut scheduler = Scheduler::Sequence(SequenceBatcher::new(config, 4));
            for id in 1..=32 + backlog {
                let attributes =
                    SchedulingAttributes { sequence: step(id, true), ..SchedulingAttributes::default() };
                assert!(scheduler.enqueue(NOW, attributes, [0; 4]).is_ok());
            }
            // The requests of sequences on the same instance arrive together.
            let mut ids = Vec::new();
            for instance in 0..4 {
                let due = scheduler.due(NOW, &[instance]).expect("all slots have a request");
                for (row, slot) in scheduler.take(due).rows.into_iter().zip(0..) {
                    let Row::Request { entry, .. } = row else { continue };
                    let Some(SequenceId::Number(id)) = entry.attributes.sequence.id else {
                        continue;
                    };
                    ids.push(id.get());
                    scheduler.released(NOW, instance, slot);
                }
            }
            assert_eq!(ids.len(), 32);
            group.throughput(Throughput::Elements(32));
            group.bench_function(BenchmarkId::new(name, backlog), |bencher| {
                bencher.iter(|| sequence_round(&mut scheduler, &ids, 8));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, rounds, sequence_rounds);
criterion_main!(benches);
