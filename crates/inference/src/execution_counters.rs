//! Counts the executions of one model version. The executor counts, and late reports of backends revise.
use std::{
    collections::BTreeMap,
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
        self.ns += nanos(duration);
    }

    /// Replaces a duration that was added by another one.
    fn revise(&mut self, before: Duration, after: Duration) {
        self.ns = self.ns.wrapping_add(nanos(after)).wrapping_sub(nanos(before));
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

/// The counters of the executions of one model version since its load.
#[derive(Debug, Default)]
pub struct ExecutionCounters {
    executions: AtomicU64,
    last_inference_ms: AtomicU64,
    by_rows: Mutex<BTreeMap<u32, BatchStatistic>>,
    /// The batches by the reason why they ended.
    batch_ends: [AtomicU64; CutReason::ALL.len()],
}

impl ExecutionCounters {
    /// Counts a batch that begins to run.
    pub fn batch_began(&self, end: CutReason) {
        self.batch_ends[end as usize].fetch_add(1, Relaxed);
    }

    /// The number of batches that ended for one reason.
    pub fn batches_ended(&self, end: CutReason) -> u64 {
        self.batch_ends[end as usize].load(Relaxed)
    }

    /// Counts an execution once: at the end of its first request, or at its own end. `unix_time` reads the time since
    /// 1970.
    pub fn executed(&self, execution_times: &ExecutionTimes, now: Timestamp, unix_time: fn() -> Duration) {
        if !execution_times.count_once() {
            return;
        }
        self.executions.fetch_add(1, Relaxed);
        self.last_inference_ms.fetch_max(millis(unix_time()), Relaxed);
        let seen = execution_times.measured(now);
        {
            let mut by_rows = self.by_rows.lock();
            let batch = by_rows.entry(execution_times.rows).or_default();
            batch.compute_input.add(seen.input());
            batch.compute_infer.add(seen.infer());
            batch.compute_output.add(seen.output());
        }
        if let Some(times) = execution_times.counted(now) {
            self.revise(execution_times, now, times);
        }
    }

    /// Replaces the times that an execution was counted with by the times that the backend reports.
    pub fn revise(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        let seen = execution_times.measured(counted);
        let mut by_rows = self.by_rows.lock();
        let batch = by_rows.entry(execution_times.rows).or_default();
        batch.compute_input.revise(seen.input(), times.input());
        batch.compute_infer.revise(seen.infer(), times.infer());
        batch.compute_output.revise(seen.output(), times.output());
    }

    /// The number of executed batches.
    pub fn count(&self) -> u64 {
        self.executions.load(Relaxed)
    }

    /// Wall clock time when a batch last ended, in milliseconds since 1970; 0 if none has ended.
    pub fn last_inference_ms(&self) -> u64 {
        self.last_inference_ms.load(Relaxed)
    }

    /// Whether an execution has ended since that time after 1970.
    pub fn has_executed_since(&self, unix_time: Duration) -> bool {
        self.last_inference_ms() >= millis(unix_time)
    }

    /// Counters for each executed batch size, ascending.
    pub fn batches(&self) -> Vec<BatchStatistic> {
        let by_rows = self.by_rows.lock();
        by_rows.iter().map(|(&rows, batch)| BatchStatistic { batch_size: rows.into(), ..*batch }).collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
