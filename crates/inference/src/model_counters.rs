//! Counts the requests and the executions of one model version. The executor counts executions, the model counts
//! requests, and late reports of backends revise both.
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use scheduling::{CutReason, Timestamp, nanos};

use crate::{ExecutionTimes, ReportedTimes, lock::Mutex};

/// How often an event happened, and its total duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationStatistic {
    /// Number of events.
    pub count: u64,
    /// Total nanoseconds.
    pub ns: u64,
}

impl DurationStatistic {
    /// Counts an event that took so long.
    pub fn add(&mut self, duration: Duration) {
        self.count += 1;
        self.prolong(duration);
    }

    /// Adds time to an event that is already counted.
    pub fn prolong(&mut self, duration: Duration) {
        self.ns = self.ns.wrapping_add(nanos(duration));
    }

    /// Subtracts time that no longer counts.
    pub fn take_back(&mut self, duration: Duration) {
        self.ns = self.ns.wrapping_sub(nanos(duration));
    }

    /// Replaces a duration that was added by another one.
    pub fn revise(&mut self, before: Duration, after: Duration) {
        self.prolong(after);
        self.take_back(before);
    }
}

/// Executions of one batch size. Counts batches, not requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchStatistic {
    /// Number of rows.
    pub batch_size: u64,
    /// From execution to compute.
    pub compute_input: DurationStatistic,
    /// Computing.
    pub compute_infer: DurationStatistic,
    /// From compute to the first end of a request of the batch.
    pub compute_output: DurationStatistic,
}

/// What has been counted of one model version since its load.
#[derive(Debug, Clone, Default)]
pub struct ModelTotals {
    /// Wall clock time when a batch last ended, in milliseconds since 1970; 0 if none has ended.
    pub last_inference_ms: u64,
    /// Rows of successful requests.
    pub inference_count: u64,
    /// Executed batches.
    pub execution_count: u64,
    /// Successful requests, from arrival to last response. For cache misses, the times of the look-up and the insertion
    /// are added.
    pub success: DurationStatistic,
    /// Failed requests, from arrival to last response.
    pub fail: DurationStatistic,
    /// Successful requests, from queue to execution.
    pub queue: DurationStatistic,
    /// Successful requests, from execution to compute.
    pub compute_input: DurationStatistic,
    /// Successful requests, computing.
    pub compute_infer: DurationStatistic,
    /// Successful requests, from compute to last response.
    pub compute_output: DurationStatistic,
    /// Requests answered from the cache: duration of the look-up.
    pub cache_hit: DurationStatistic,
    /// Successful requests that missed the cache: duration of look-up and insertion. Excludes requests whose answer an
    /// equal request stored first.
    pub cache_miss: DurationStatistic,
    /// Executions of each batch size, ascending.
    pub batches: Vec<BatchStatistic>,
}

impl ModelTotals {
    /// Counts an execution that has ended at `now`, which is `unix_time` since 1970.
    pub fn executed(&mut self, execution_times: &ExecutionTimes, now: Timestamp, unix_time: Duration) {
        self.execution_count += 1;
        self.last_inference_ms = self.last_inference_ms.max(millis(unix_time));
        let seen = execution_times.measured(now);
        let batch = self.batch(execution_times.rows);
        batch.compute_input.add(seen.input());
        batch.compute_infer.add(seen.infer());
        batch.compute_output.add(seen.output());
    }

    fn batch(&mut self, rows: u32) -> &mut BatchStatistic {
        let batch_size = rows.into();
        let place = self.batches.binary_search_by_key(&batch_size, |batch| batch.batch_size);
        let place = place.unwrap_or_else(|place| {
            self.batches.insert(place, BatchStatistic { batch_size, ..BatchStatistic::default() });
            place
        });
        &mut self.batches[place]
    }
}

/// The counters of one model version since its load. All totals are behind one lock: who reads them sees those of one
/// moment.
#[derive(Debug, Default)]
pub struct ModelCounters {
    totals: Mutex<ModelTotals>,
    /// The batches by the reason why they ended.
    batch_ends: [AtomicU64; CutReason::ALL.len()],
}

impl ModelCounters {
    /// Counts a batch that begins to run.
    pub fn batch_began(&self, end: CutReason) {
        self.batch_ends[end as usize].fetch_add(1, Relaxed);
    }

    /// The number of batches that ended for one reason.
    pub fn batches_ended(&self, end: CutReason) -> u64 {
        self.batch_ends[end as usize].load(Relaxed)
    }

    /// Counts what has happened in one moment. `count` must only count: it runs under the lock.
    pub fn count(&self, count: impl FnOnce(&mut ModelTotals)) {
        count(&mut self.totals.lock());
    }

    /// The totals at this moment.
    pub fn read(&self) -> ModelTotals {
        self.totals.lock().clone()
    }

    /// Counts an execution at its own end, unless one of its requests has ended before. `unix_time` reads the time
    /// since 1970.
    pub fn executed(&self, execution_times: &ExecutionTimes, now: Timestamp, unix_time: fn() -> Duration) {
        if execution_times.count_once() {
            let unix_time = unix_time();
            self.count(|totals| totals.executed(execution_times, now, unix_time));
            self.execution_counted(execution_times, now);
        }
    }

    /// An execution has been counted at `now`. If the backend has reported its times, they replace the measured ones.
    pub fn execution_counted(&self, execution_times: &ExecutionTimes, now: Timestamp) {
        if let Some(times) = execution_times.counted(now) {
            self.revise(execution_times, now, times);
        }
    }

    /// Replaces the times that an execution was counted with by the times that the backend reports.
    pub fn revise(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        let seen = execution_times.measured(counted);
        self.count(|totals| {
            let batch = totals.batch(execution_times.rows);
            batch.compute_input.revise(seen.input(), times.input());
            batch.compute_infer.revise(seen.infer(), times.infer());
            batch.compute_output.revise(seen.output(), times.output());
        });
    }

    /// Whether an execution has ended since that time after 1970.
    pub fn has_executed_since(&self, unix_time: Duration) -> bool {
        self.totals.lock().last_inference_ms >= millis(unix_time)
    }

    /// The number of successful requests.
    pub fn succeeded(&self) -> u64 {
        self.totals.lock().success.count
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
