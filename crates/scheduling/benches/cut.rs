//! What a request costs the scheduler, at several lengths of the queue.
//!
//! Each round lets as many requests come as one batch takes, asks after each whether something is due
//! and when to wake up, as the driver does, and takes the batch: the queue keeps its length.
use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nereid_scheduling::{
    DynamicBatcher, DynamicBatching, Meta, Moment, QueuePolicy, Scheduler, TimeoutAction, Unbatched,
};

const NOW: Moment = Moment::from_nanos(1_000_000_000);

/// About what the engine carries.
type Payload = [u64; 4];

fn round(scheduler: &mut dyn Scheduler<Payload>, batch_size: u32) {
    for _ in 0..batch_size {
        assert!(scheduler.enqueue(NOW, Meta::default(), black_box([1; 4])).is_ok());
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
    // The length includes one that comes: at 1, what comes in a round is what leaves.
    for length in [1, 64, 10_000] {
        let mut measure = |name: &str, batch_size: u32, mut scheduler: Box<dyn Scheduler<Payload>>| {
            for _ in 1..length {
                assert!(scheduler.enqueue(NOW, Meta::default(), [0; 4]).is_ok());
            }
            group.throughput(Throughput::Elements(u64::from(batch_size)));
            group.bench_function(BenchmarkId::new(name, length), |bencher| {
                bencher.iter(|| round(&mut *scheduler, batch_size));
            });
        };
        measure("unbatched", 1, Box::new(Unbatched::new()));
        for batch_size in [1, 8, 64] {
            measure(
                &format!("dynamic_{batch_size}"),
                batch_size,
                Box::new(DynamicBatcher::new(batching(batch_size))),
            );
        }
        measure("overridable_timeouts_8", 8, Box::new(DynamicBatcher::new(overridable(8))));
    }
    group.finish();
}
criterion_group!(benches, rounds);
criterion_main!(benches);
