//! A histogram that many threads count in at the same time.
//!
//! Each thread counts in one of a few shards, so that two threads rarely write to the same cache line. A reader adds
//! the shards up.
use std::{
    array,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use inference::{TraceId, lock::Mutex, metrics::Exemplar};
use scheduling::nanos;

/// The number of shards. A thread has one of them for all histograms.
const SHARDS: usize = 4;

/// The upper bounds of durations in microseconds. Most models take from a tenth of a millisecond to a second.
pub(crate) const DURATION_BOUNDS_US: [u64; 18] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 30_000_000,
];

/// Counts durations by their upper bounds.
pub(crate) struct ShardedHistogram {
    /// Ascending, in nanoseconds.
    bounds: Box<[u64]>,
    shards: [HistogramShard; SHARDS],
    /// The latest traced value of each bucket; made with the first one.
    exemplars: OnceLock<Box<[Mutex<Option<Exemplar>>]>>,
}

/// What some of the threads have counted: the sum of all durations in nanoseconds, then a count for each bound, and one for
/// what exceeds all bounds. Two shards never share a cache line.
struct HistogramShard(Box<[CountLine]>);

/// Numbers that fill the cache lines which a processor fetches together.
#[derive(Default)]
#[repr(align(128))]
struct CountLine([AtomicU64; NUMBERS_OF_LINE]);

const NUMBERS_OF_LINE: usize = 16;

impl HistogramShard {
    fn new(bounds: usize) -> Self {
        let numbers = bounds + 2;
        Self((0..numbers.div_ceil(NUMBERS_OF_LINE)).map(|_| CountLine::default()).collect())
    }

    fn number(&self, index: usize) -> &AtomicU64 {
        &self.0[index / NUMBERS_OF_LINE].0[index % NUMBERS_OF_LINE]
    }

    fn nanos(&self) -> &AtomicU64 {
        self.number(0)
    }

    fn count(&self, bucket: usize) -> &AtomicU64 {
        self.number(bucket + 1)
    }
}

/// The sum of all shards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistogramReading {
    /// The upper bounds in nanoseconds.
    pub(crate) bounds: Box<[u64]>,
    /// The number of durations up to each bound and above the bound before it. The last number is of those that exceed
    /// all bounds.
    pub(crate) counts: Vec<u64>,
    /// The sum of all durations in nanoseconds.
    pub(crate) nanos: u64,
    /// The latest traced duration for each count, in seconds.
    pub(crate) exemplars: Vec<Option<Exemplar>>,
}

impl HistogramReading {
    /// The number of all durations.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl ShardedHistogram {
    /// The bounds of durations in general.
    pub(crate) fn of_durations() -> Self {
        Self::new(DURATION_BOUNDS_US.iter().map(|micros| micros * 1_000).collect())
    }

    /// Without any duration. `bounds` ascend and are in nanoseconds.
    pub(crate) fn new(bounds: Box<[u64]>) -> Self {
        Self {
            shards: array::from_fn(|_| HistogramShard::new(bounds.len())),
            bounds,
            exemplars: OnceLock::new(),
        }
    }

    /// Counts a duration.
    pub(crate) fn observe(&self, duration: Duration) {
        let nanos = nanos(duration);
        let shard = self.shard();
        shard.count(self.bucket(nanos)).fetch_add(1, Relaxed);
        shard.nanos().fetch_add(nanos, Relaxed);
    }

    /// As [`observe`](Self::observe), for a request that other programs trace.
    pub(crate) fn observe_traced(&self, duration: Duration, trace_id: TraceId) {
        self.observe(duration);
        let exemplars =
            self.exemplars.get_or_init(|| (0..=self.bounds.len()).map(|_| Mutex::new(None)).collect());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let exemplar = Exemplar { trace_id, value: duration.as_secs_f64(), at };
        // If another thread stores one at the same time, one of both is as good as the other.
        if let Some(mut latest) = exemplars[self.bucket(nanos(duration))].try_lock() {
            *latest = Some(exemplar);
        }
    }

    /// Replaces a counted duration by another one.
    pub(crate) fn revise(&self, before: Duration, after: Duration) {
        let (before, after) = (nanos(before), nanos(after));
        let shard = self.shard();
        // A shard may count less than nothing. The sum of the shards does not.
        shard.count(self.bucket(before)).fetch_sub(1, Relaxed);
        shard.count(self.bucket(after)).fetch_add(1, Relaxed);
        shard.nanos().fetch_add(after.wrapping_sub(before), Relaxed);
    }

    /// What has been counted.
    pub(crate) fn read(&self) -> HistogramReading {
        let sum = |of: &dyn Fn(&HistogramShard) -> u64| {
            self.shards.iter().fold(0_u64, |sum, shard| sum.wrapping_add(of(shard)))
        };
        // Between the two steps of a revision a count may be one too small.
        let count = |bucket: usize| {
            let count = sum(&|shard| shard.count(bucket).load(Relaxed));
            if count > u64::MAX / 2 { 0 } else { count }
        };
        HistogramReading {
            bounds: self.bounds.clone(),
            counts: (0..=self.bounds.len()).map(count).collect(),
            nanos: sum(&|shard| shard.nanos().load(Relaxed)),
            exemplars: match self.exemplars.get() {
                Some(exemplars) => exemplars.iter().map(|exemplar| *exemplar.lock()).collect(),
                None => vec![None; self.bounds.len() + 1],
            },
        }
    }

    fn bucket(&self, nanos: u64) -> usize {
        self.bounds.partition_point(|&bound| bound < nanos)
    }

    fn shard(&self) -> &HistogramShard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OF_THREAD: usize = NEXT.fetch_add(1, Relaxed) % SHARDS;
        }
        &self.shards[OF_THREAD.with(|shard| *shard)]
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_duration_counts_up_to_its_bound() {
        let histogram = ShardedHistogram::new([1_000, 2_000].into());
        for nanos in [0, 1_000, 1_001, 2_000, 2_001, 5_000] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let read = histogram.read();
        assert_eq!((read.counts.clone(), read.nanos, read.total()), (vec![2, 2, 2], 11_002, 6));
    }

    #[test]
    fn what_several_threads_count_adds_up() {
        let histogram = ShardedHistogram::of_durations();
        thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| (0..1_000).for_each(|each| histogram.observe(micros(each))));
            }
        });
        let read = histogram.read();
        assert_eq!(read.total(), 8_000);
        assert_eq!(read.nanos, 8 * 499_500_000);
        assert_eq!(read.counts[..4], [8 * 51, 8 * 50, 8 * 100, 8 * 300]);
    }

    #[test]
    fn a_revised_duration_counts_once_also_on_another_thread() {
        let histogram = ShardedHistogram::of_durations();
        histogram.observe(micros(70));
        thread::scope(|scope| {
            for _ in 0..SHARDS {
                scope.spawn(|| {
                    histogram.revise(micros(70), micros(10));
                    histogram.revise(micros(10), micros(70));
                });
            }
        });
        histogram.revise(micros(70), micros(10));
        let read = histogram.read();
        assert_eq!((read.total(), read.nanos, read.counts[0]), (1, 10_000, 1));
    }

    #[test]
    fn a_bucket_keeps_its_latest_traced_duration() {
        let histogram = ShardedHistogram::of_durations();
        histogram.observe(micros(10));
        assert_eq!(histogram.read().exemplars, vec![None; 19]);
        histogram.observe_traced(micros(70), TraceId::new([1; 16]));
        histogram.observe_traced(micros(80), TraceId::new([2; 16]));
        let read = histogram.read();
        let exemplar = read.exemplars[1].unwrap();
        assert_eq!((exemplar.trace_id, exemplar.value), (TraceId::new([2; 16]), 0.000_08));
        assert_eq!((read.exemplars[0], read.total()), (None, 3));
    }
}
