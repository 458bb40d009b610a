//! The counters of one model version. Written once when a request ends, read by statistics and metrics.
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::unix_time;
use inference::{
    ModelCounters, ModelTotals, ReportedTimes, ResponseReport, Timeline, Timestamp, backend::MemoryUsage,
};
use vocabulary::{Error, FailureReason, Name};

use super::{
    labels::SeriesLabels,
    last_failure::{FailureSnapshot, LastFailure},
    latencies::Latencies,
    responses::{ResponseStatistic, Responses},
};

/// Counters of one model version since its load (protocol extension "statistics").
#[derive(Debug, Clone, Default)]
pub struct ModelStatistics {
    /// Model name.
    pub name: Name,
    /// Version number.
    pub version: i64,
    /// What has been counted of its requests and executions, at one moment.
    pub totals: ModelTotals,
    /// Counters for each position of a response in its request, ascending, of backends that report their responses.
    pub responses: Vec<ResponseStatistic>,
    /// The memory that the model uses now, as its backend reports it.
    pub memory_usage: Vec<MemoryUsage>,
}

/// When the cache looked up a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupTimes {
    /// When the request came to the scheduler.
    pub(crate) queued: Timestamp,
    /// When the look-up began.
    pub(crate) began: Timestamp,
    /// When the look-up ended.
    pub(crate) ended: Timestamp,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct RequestCounters {
    /// The executor counts its executions there, too.
    counters: Arc<ModelCounters>,
    failures: [AtomicU64; 4],
    last_failure: LastFailure,
    responses: Responses,
    latencies: Latencies,
    labels: OnceLock<SeriesLabels>,
}

impl RequestCounters {
    /// Without any request.
    pub(crate) fn new(latencies: Latencies) -> Self {
        Self { latencies, ..Self::default() }
    }

    /// The counters, for the executor too.
    pub(crate) fn counters(&self) -> &Arc<ModelCounters> {
        &self.counters
    }

    /// How durations are distributed.
    pub(crate) fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The labels of the model's metrics. `make` makes them once.
    pub(crate) fn labels(&self, make: impl FnOnce() -> SeriesLabels) -> &SeriesLabels {
        self.labels.get_or_init(make)
    }

    /// Whether [`responded`](Self::responded) must be called.
    pub(crate) fn wants_first_responses(&self) -> bool {
        self.latencies.wants_first_responses()
    }

    /// A response has come. Only the first one of a request counts.
    pub(crate) fn responded(&self, timeline: &Timeline, now: Timestamp) {
        if timeline.responds_first() {
            self.latencies.first_response(now - timeline.request_start);
        }
    }

    /// Counts a request that has just ended.
    pub(crate) fn request_ended(&self, timeline: &Timeline, outcome: Result<(), &Error>, now: Timestamp) {
        match outcome {
            Ok(()) => self.succeeded(timeline, now),
            Err(error) => self.failed(timeline, error, now),
        }
    }

    fn succeeded(&self, timeline: &Timeline, now: Timestamp) {
        self.latencies.succeeded(timeline, now);
        let took = now - timeline.request_start;
        let Some(execution_times) = timeline.execution() else {
            return self.counters.count(|totals| totals.success.add(took));
        };
        let seen = execution_times.measured(now);
        let queued = seen.exec_start - timeline.queue_start();
        let ended = execution_times.count_once().then(unix_time);
        self.counters.count(|totals| {
            totals.success.add(took);
            totals.queue.add(queued);
            totals.compute_input.add(seen.input());
            totals.compute_infer.add(seen.infer());
            totals.compute_output.add(seen.output());
            totals.inference_count += u64::from(timeline.rows);
            if let Some(unix_time) = ended {
                totals.executed(execution_times, now, unix_time);
            }
        });
        self.latencies.executed(queued, seen);
        // Done last: a report that comes later revises these counters.
        if let Some(times) = timeline.counted(now) {
            self.revise_request(timeline, now, times);
        }
        if ended.is_some() {
            self.counters.execution_counted(execution_times, now);
        }
    }

    fn failed(&self, timeline: &Timeline, error: &Error, now: Timestamp) {
        self.failures[error.reason as usize].fetch_add(1, Relaxed);
        let is_cancelled = error.reason == FailureReason::Cancelled;
        if !is_cancelled {
            self.last_failure.note(error);
        }
        // The statistics leave out a request that was never queued. As Triton: only metrics count it (P-W30).
        if timeline.was_queued() {
            let took = now - timeline.request_start;
            self.counters.count(|totals| totals.fail.add(took));
        }
        // A cancelled request need not have been executed.
        if let Some(execution_times) = timeline.execution().filter(|_| !is_cancelled) {
            self.counters.executed(execution_times, now, unix_time);
        }
    }

    /// Replaces the times that a request was counted with by the times that the backend reports.
    pub(crate) fn revise_request(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        let Some(execution_times) = timeline.execution() else { return };
        let (seen, queued) = (execution_times.measured(counted), timeline.queue_start());
        let (before, after) = (seen.exec_start - queued, times.exec_start - queued);
        self.latencies.revise((before, seen), (after, times));
        self.counters.count(|totals| {
            totals.queue.revise(before, after);
            totals.compute_input.revise(seen.input(), times.input());
            totals.compute_infer.revise(seen.infer(), times.infer());
            totals.compute_output.revise(seen.output(), times.output());
        });
    }

    /// Counts a response that a backend has reported.
    pub(crate) fn response(&self, index: u64, report: ResponseReport) {
        self.responses.count(index, report);
    }

    /// Counts a request that is answered from the cache.
    pub(crate) fn cache_hit(&self, timeline: &Timeline, lookup: &LookupTimes, now: Timestamp) {
        let took = now - timeline.request_start;
        let (queued, looked_up) = (lookup.began - lookup.queued, lookup.ended - lookup.began);
        self.counters.count(|totals| {
            totals.success.add(took);
            totals.queue.add(queued);
            totals.cache_hit.add(looked_up);
        });
        self.latencies.succeeded(timeline, now);
        self.latencies.cache_hit(queued, looked_up, now);
    }

    /// Counts a cache miss whose request has succeeded. The look-up `took` so long. That time is added to the request's
    /// own time. As Triton: infer_stats.cc, UpdateSuccessCacheMiss.
    pub(crate) fn cache_miss(&self, took: Duration) {
        self.counters.count(|totals| {
            totals.success.prolong(took);
            totals.cache_miss.add(took);
        });
    }

    /// Adds the time of the insertion to a request that was counted as a miss.
    pub(crate) fn cache_insertion(&self, looked_up: Option<Duration>, took: Duration, now: Timestamp) {
        self.counters.count(|totals| {
            totals.success.prolong(took);
            totals.cache_miss.prolong(took);
        });
        if let Some(looked_up) = looked_up {
            self.cache_miss_ended(looked_up + took, now);
        }
    }

    /// A cache miss is over. It took so long, with the insertion if there was one.
    pub(crate) fn cache_miss_ended(&self, took: Duration, now: Timestamp) {
        self.latencies.cache_miss(took, now);
    }

    /// Reverts the count of a miss, because an equal request has been stored first. As Triton: neither hit nor miss.
    pub(crate) fn no_cache_miss(&self, took: Duration) {
        self.counters.count(|totals| {
            totals.success.take_back(took);
            totals.cache_miss.take_back(took);
            totals.cache_miss.count -= 1;
        });
    }

    /// The number of failures for one reason.
    pub(crate) fn failures(&self, reason: FailureReason) -> u64 {
        self.failures[reason as usize].load(Relaxed)
    }

    /// The last failure that was not a cancellation, as its client got it.
    pub(crate) fn last_failure(&self) -> Option<FailureSnapshot> {
        self.last_failure.read()
    }

    /// The number of requests that have ended, in whatever way.
    pub(crate) fn requests_ended(&self) -> u64 {
        self.counters.succeeded() + self.requests_failed()
    }

    /// Those that have failed.
    pub(crate) fn requests_failed(&self) -> u64 {
        self.failures.iter().map(|failures| failures.load(Relaxed)).sum()
    }

    /// The counters by position of the response.
    pub(crate) fn responses(&self) -> Vec<ResponseStatistic> {
        self.responses.read()
    }

    /// All other counters at one moment, under the given name and version.
    pub(crate) fn read(&self, name: &Name, version: i64) -> ModelStatistics {
        ModelStatistics {
            name: name.clone(),
            version,
            totals: self.counters.read(),
            responses: Vec::new(),
            memory_usage: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use inference::{
        BackendReport, DurationStatistic, ExecutionTimes, PassingResponse, ResponseObserver, UnreadPolicy,
        response_channel,
    };

    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1_000)
    }

    fn executed(
        record: &RequestCounters,
        rows: u32,
        execution_times: &Arc<ExecutionTimes>,
        outcome: Result<(), &Error>,
    ) {
        let timeline = Timeline::new(at(10), rows);
        timeline.queued(at(11), &[]);
        timeline.executing(execution_times.clone());
        record.request_ended(&timeline, outcome, at(50));
    }

    #[test]
    fn two_requests_of_a_batch_are_two_requests_and_one_execution() {
        let record = RequestCounters::default();
        let execution_times = Arc::new(ExecutionTimes::start(5, || at(20)));
        executed(&record, 2, &execution_times, Ok(()));
        executed(&record, 3, &execution_times, Ok(()));
        let read = record.read(&"m".into(), 1);
        assert_eq!((read.totals.inference_count, read.totals.execution_count), (5, 1));
        assert_eq!(read.totals.success, DurationStatistic { count: 2, ns: 80_000 });
        assert_eq!(read.totals.queue, DurationStatistic { count: 2, ns: 18_000 });
        assert_eq!(read.totals.compute_infer, DurationStatistic { count: 2, ns: 60_000 });
        assert_eq!(read.totals.batches.len(), 1);
        assert_eq!((read.totals.batches[0].batch_size, read.totals.batches[0].compute_infer.count), (5, 1));
    }

    /// Where the counters are not read at one moment, requests are there without their executions, or the reverse.
    #[test]
    fn whoever_reads_sees_requests_and_executions_of_one_moment() {
        let record = RequestCounters::default();
        std::thread::scope(|threads| {
            let ended = threads.spawn(|| {
                for _ in 0..20_000 {
                    executed(&record, 1, &Arc::new(ExecutionTimes::start(1, || at(20))), Ok(()));
                }
            });
            while !ended.is_finished() {
                let read = record.read(&"m".into(), 1);
                let batches: u64 = read.totals.batches.iter().map(|batch| batch.compute_output.count).sum();
                let others = [
                    read.totals.inference_count,
                    read.totals.execution_count,
                    read.totals.compute_output.count,
                    batches,
                ];
                assert_eq!(others, [read.totals.success.count; 4]);
            }
        });
    }

    struct Counting(RequestCounters);

    impl ResponseObserver for Counting {
        fn responding(&self, response: &PassingResponse<'_>) {
            if let Some(outcome) = response.outcome() {
                self.0.request_ended(response.timeline(), outcome, at(50));
            }
        }
        fn reported(&self, report: BackendReport<'_>) {
            match report {
                BackendReport::Request { timeline, counted, times } => {
                    self.0.revise_request(timeline, counted, times);
                }
                BackendReport::Batch { execution_times, counted, times } => {
                    self.0.counters.revise(execution_times, counted, times);
                }
                BackendReport::Response { .. } => {}
            }
        }
    }

    #[test]
    fn times_that_a_backend_reports_count_whether_they_come_before_the_end_or_after_it() {
        let times = ReportedTimes {
            exec_start: at(21),
            compute_start: at(24),
            compute_end: at(31),
            exec_end: at(36),
        };
        for before_the_end in [true, false] {
            let counting = Arc::new(Counting(RequestCounters::default()));
            let (responder, _stream) =
                response_channel(Timeline::new(at(10), 2), counting.clone(), UnreadPolicy::unlimited());
            responder.timeline().queued(at(11), &[]);
            responder.timeline().executing(Arc::new(ExecutionTimes::start(2, || at(20))));
            let (backend, batch) = (responder.clone(), responder.batch_reporter().unwrap());
            let report = || {
                backend.report(times);
                batch.report(times);
            };
            if before_the_end {
                report();
            }
            responder.finish();
            if !before_the_end {
                report();
            }
            let read = counting.0.read(&"m".into(), 1);
            let request = [
                read.totals.queue,
                read.totals.compute_input,
                read.totals.compute_infer,
                read.totals.compute_output,
            ];
            assert_eq!(
                request.map(|each| (each.count, each.ns)),
                [(1, 10_000), (1, 3_000), (1, 7_000), (1, 5_000)]
            );
            let batch = [
                &read.totals.batches[0].compute_input,
                &read.totals.batches[0].compute_infer,
                &read.totals.batches[0].compute_output,
            ];
            assert_eq!(batch.map(|each| (each.count, each.ns)), [(1, 3_000), (1, 7_000), (1, 5_000)]);
        }
    }

    #[test]
    fn a_failed_execution_counts_as_execution_but_not_as_inference() {
        let record = RequestCounters::default();
        let error = Error::internal("boom").because(FailureReason::Backend);
        executed(&record, 2, &Arc::new(ExecutionTimes::start(2, || at(20))), Err(&error));
        let read = record.read(&"m".into(), 1);
        assert_eq!(
            (
                read.totals.inference_count,
                read.totals.execution_count,
                read.totals.fail.count,
                read.totals.success.count
            ),
            (0, 1, 1, 0)
        );
        assert_eq!((record.failures(FailureReason::Backend), record.requests_ended()), (1, 1));
        let cancelled = Error::internal("gone").because(FailureReason::Cancelled);
        record.request_ended(&Timeline::new(at(1), 1), Err(&cancelled), at(2));
        assert_eq!(record.last_failure().map(|last| last.text).as_deref(), Some("boom"));
        let lately = unix_time() - Duration::from_secs(600);
        assert!(record.counters().has_executed_since(lately));
        assert!(!RequestCounters::default().counters().has_executed_since(lately));
    }

    #[test]
    fn a_request_that_was_answered_from_the_cache_was_not_executed() {
        let record = RequestCounters::default();
        let lookup = LookupTimes { queued: at(11), began: at(14), ended: at(20) };
        record.cache_hit(&Timeline::new(at(10), 2), &lookup, at(22));
        let read = record.read(&"m".into(), 1);
        assert_eq!(read.totals.success, DurationStatistic { count: 1, ns: 12_000 });
        assert_eq!(read.totals.queue, DurationStatistic { count: 1, ns: 3_000 });
        assert_eq!(read.totals.cache_hit, DurationStatistic { count: 1, ns: 6_000 });
        assert_eq!(
            (read.totals.inference_count, read.totals.execution_count, read.totals.last_inference_ms),
            (0, 0, 0)
        );
        assert_eq!(
            (
                read.totals.compute_input.count,
                read.totals.compute_infer.count,
                read.totals.compute_output.count
            ),
            (0, 0, 0)
        );
    }

    #[test]
    fn the_time_of_a_cache_miss_is_added_to_its_request() {
        let record = RequestCounters::default();
        record.cache_miss(Duration::from_micros(7));
        executed(&record, 1, &Arc::new(ExecutionTimes::start(1, || at(20))), Ok(()));
        let read = record.read(&"m".into(), 1);
        assert_eq!(read.totals.cache_miss, DurationStatistic { count: 1, ns: 7_000 });
        assert_eq!(read.totals.success, DurationStatistic { count: 1, ns: 47_000 });
        assert_eq!((read.totals.cache_hit.count, read.totals.inference_count), (0, 1));
    }

    #[test]
    fn a_request_that_no_queue_accepted_counts_in_metrics_and_not_in_statistics() {
        let record = RequestCounters::default();
        let error = Error::unavailable("full").because(FailureReason::Rejected);
        record.request_ended(&Timeline::new(at(1), 1), Err(&error), at(2));
        assert_eq!(record.failures(FailureReason::Rejected), 1);
        assert_eq!(record.read(&"m".into(), 1).totals.fail.count, 0);
    }
}
