//! The times of a request. Each time is recorded once, in this module, when it happens. The request's trace receives
//! it at the same moment.
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::Tensor;

use crate::{
    Response, TensorActivity, TraceActivity, TraceContext, cache::CacheStatus, lock::Mutex,
    trace::WeakTraceContext,
};

/// The times at which an execution reached each phase, as the backend reports them
/// (`TRITONBACKEND_ModelInstanceReportStatistics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedTimes {
    /// The backend received the requests.
    pub exec_start: Timestamp,
    /// The inputs were ready.
    pub compute_start: Timestamp,
    /// The outputs were computed.
    pub compute_end: Timestamp,
    /// The outputs were sent.
    pub exec_end: Timestamp,
}

impl ReportedTimes {
    /// From the start until the inputs were ready.
    pub fn input(&self) -> Duration {
        self.compute_start - self.exec_start
    }

    /// From then until the outputs were computed.
    pub fn infer(&self) -> Duration {
        self.compute_end - self.compute_start
    }

    /// From then until the outputs were sent.
    pub fn output(&self) -> Duration {
        self.exec_end - self.compute_end
    }
}

/// Two threads may arrive in any order: the thread that counts the request or execution, and the backend's thread
/// that reports the times. The second thread receives the value that the first one stored.
#[derive(Debug, Default)]
struct Rendezvous {
    counted: AtomicU64,
    reported: OnceLock<ReportedTimes>,
    second_comes: AtomicBool,
}

impl Rendezvous {
    /// Records the time of the count. Called once. Returns the times that were reported before.
    fn count(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.counted.store(at.as_nanos(), Release);
        let is_second = self.second_comes.swap(true, AcqRel);
        if is_second { self.reported.get().copied() } else { None }
    }

    /// When the count came, if it has come.
    fn counted_at(&self) -> Option<Timestamp> {
        match self.counted.load(Acquire) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Records the reported times. Returns the time of the count, if it came before. Only the first report counts.
    fn report(&self, times: ReportedTimes) -> Option<Timestamp> {
        self.reported.set(times).ok()?;
        let is_second = self.second_comes.swap(true, AcqRel);
        is_second.then(|| Timestamp::from_nanos(self.counted.load(Relaxed)))
    }
}

/// The times of one request: arrival, queue, and the execution that contains it. For an untraced request each time
/// costs one additional branch.
#[derive(Debug)]
pub struct Timeline {
    /// When the server accepted the request from its caller.
    pub request_start: Timestamp,
    /// Rows of the request; 1 for models without a batch dimension.
    pub rows: u32,
    /// The number of the version that answers the request, if the request is one to a model of the server. It may be
    /// another one than that which the sender looked up.
    pub version: Option<i64>,
    queue_start: AtomicU64,
    execution: OnceLock<Arc<ExecutionTimes>>,
    end: Rendezvous,
    cache_status: OnceLock<CacheStatus>,
    has_responded: AtomicBool,
    is_traced: bool,
    trace: Mutex<TraceState>,
}

/// What a timeline knows about the trace of its request.
#[derive(Debug, Default)]
struct TraceState {
    /// Removed when the trace has received everything. A later owner of the timeline must not keep the trace alive.
    trace: Option<TraceContext>,
    /// A backend that reports times itself has the request. The trace does not end before the backend releases it.
    is_held: bool,
    /// The request ended at this time while the backend had it.
    ended: Option<Timestamp>,
    /// The trace has received the times of the execution, or receives none.
    has_times: bool,
}

impl Timeline {
    /// The timeline of a request with `rows` rows, accepted at `request_start`.
    pub fn new(request_start: Timestamp, rows: u32) -> Self {
        let queue_start = AtomicU64::new(0);
        let end = Rendezvous::default();
        let (execution, cache_status) = (OnceLock::new(), OnceLock::new());
        let (has_responded, is_traced, trace) = (AtomicBool::new(false), false, Mutex::default());
        Self {
            request_start,
            rows,
            version: None,
            queue_start,
            execution,
            end,
            cache_status,
            has_responded,
            is_traced,
            trace,
        }
    }

    /// The same timeline for a request that a version of a model answers.
    #[must_use]
    pub fn of_version(self, version: i64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The same timeline with a trace, if the request is traced.
    #[must_use]
    pub fn traced(self, trace: Option<TraceContext>) -> Self {
        let state = TraceState { trace, ..TraceState::default() };
        let traced = Self { is_traced: state.trace.is_some(), trace: Mutex::new(state), ..self };
        traced.tell(TraceActivity::RequestStart, traced.request_start);
        traced
    }

    fn tell(&self, activity: TraceActivity, at: Timestamp) {
        // Without the lock, because a sink may call a function of a C program.
        if let Some(trace) = self.trace() {
            trace.tell(activity, at);
        }
    }

    /// The trace of the request, if it is traced and has not ended.
    pub fn trace(&self) -> Option<TraceContext> {
        if self.is_traced { self.trace.lock().trace.clone() } else { None }
    }

    /// Records that the request with these inputs has reached its queue, or waits for an equal request. The trace
    /// receives the first time, and the inputs if it wants tensors.
    pub fn queued(&self, at: Timestamp, inputs: &[Tensor]) {
        if self.queue_start.swap(at.as_nanos(), Relaxed) != 0 {
            return;
        }
        if let Some(trace) = self.trace() {
            trace.tell(TraceActivity::QueueStart, at);
            trace.tell_tensors(TensorActivity::QueueInput, inputs);
        }
    }

    /// Tells the outputs of a response to the trace, if it wants tensors.
    pub fn responded(&self, response: &Response) {
        if let Some(trace) = self.trace() {
            trace.tell_tensors(TensorActivity::BackendOutput, &response.outputs);
        }
    }

    /// Records that the queue has rejected the request.
    pub fn not_queued(&self) {
        self.queue_start.store(0, Relaxed);
    }

    /// When the request entered its queue; its arrival time if it never did.
    pub fn queue_start(&self) -> Timestamp {
        match self.queue_start.load(Relaxed) {
            0 => self.request_start,
            nanos => Timestamp::from_nanos(nanos),
        }
    }

    /// Whether the request was accepted into a queue.
    pub fn was_queued(&self) -> bool {
        self.queue_start.load(Relaxed) != 0
    }

    /// Returns true for the first caller only: the one that has the first response.
    pub fn responds_first(&self) -> bool {
        !self.has_responded.swap(true, Relaxed)
    }

    /// Records where the answer comes from, for a request that has asked the response cache. Only the first one counts.
    pub fn set_cache_status(&self, status: CacheStatus) {
        let _ = self.cache_status.set(status);
    }

    /// Where the answer comes from, if the request has asked the response cache.
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.cache_status.get().copied()
    }

    /// Records the execution that contains the request. Only the first one counts.
    pub fn executing(&self, execution_times: Arc<ExecutionTimes>) {
        let (begun, rows) = (execution_times.exec_start, execution_times.rows);
        if self.execution.set(execution_times).is_ok()
            && let Some(trace) = self.trace()
        {
            trace.batched(rows);
            trace.tell(TraceActivity::ComputeStart, begun);
        }
    }

    /// Records the execution of a request whose work other models do. Its trace receives the times of their requests
    /// as children, and none of its own.
    pub fn executed_by_members(&self, execution_times: Arc<ExecutionTimes>) {
        let _ = self.execution.set(execution_times);
        if self.is_traced {
            self.trace.lock().has_times = true;
        }
    }

    /// A backend that reports its times with [`Responder::report`](crate::Responder::report) takes the request. It
    /// calls [`Timeline::released`] at the end.
    pub fn held(&self) {
        if self.is_traced {
            self.trace.lock().is_held = true;
        }
    }

    /// The backend that has [held](Timeline::held) the request releases it. If the request has ended, its trace ends.
    pub fn released(&self) {
        if !self.is_traced {
            return;
        }
        let mut state = self.trace.lock();
        state.is_held = false;
        let Some(ended) = state.ended.take() else { return };
        let (trace, has_times) = (state.trace.take(), state.has_times);
        drop(state);
        let now = self.execution().map_or(ended, |execution| (execution.clock)());
        self.tell_end(trace, has_times, ended, now);
    }

    /// Records the end of the request. The trace now also receives the times that the backend has not recorded, unless
    /// the backend still has the request and may report them.
    pub fn ended(&self, at: Timestamp) {
        if !self.is_traced {
            return;
        }
        let mut state = self.trace.lock();
        if state.is_held {
            state.ended.get_or_insert(at);
            return;
        }
        let (trace, has_times) = (state.trace.take(), state.has_times);
        drop(state);
        self.tell_end(trace, has_times, at, at);
    }

    /// `computed`: the latest time at which the execution can have ended.
    fn tell_end(&self, trace: Option<TraceContext>, has_times: bool, computed: Timestamp, end: Timestamp) {
        let Some(trace) = trace else { return };
        if let Some(execution) = self.execution().filter(|_| !has_times) {
            execution.tell_missing(&trace, computed);
            trace.tell(TraceActivity::ComputeEnd, computed);
        }
        trace.tell(TraceActivity::RequestEnd, end);
    }

    /// Tells the times that a backend reports to the trace. A request that was executed several times has the times of
    /// the first report.
    fn tell_reported(&self, times: ReportedTimes) {
        let mut state = self.trace.lock();
        if !state.is_held || std::mem::replace(&mut state.has_times, true) {
            return;
        }
        let Some(trace) = state.trace.clone() else { return };
        drop(state);
        trace.tell(TraceActivity::ComputeInputEnd, times.compute_start);
        trace.tell(TraceActivity::ComputeOutputStart, times.compute_end);
        trace.tell(TraceActivity::ComputeEnd, times.exec_end);
    }

    /// The execution that contains the request, after it has started.
    pub fn execution(&self) -> Option<&Arc<ExecutionTimes>> {
        self.execution.get()
    }

    /// Records that the request has ended and has been counted with the times that the runtime measured. Call it
    /// once. Returns the backend's times, if the backend has reported them.
    pub fn counted(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.end.count(at)
    }

    /// The times with which the request has been counted: those of its backend, or those that the runtime measured. `None`
    /// before the count, or if nothing has executed the request.
    pub fn counted_times(&self) -> Option<ReportedTimes> {
        let end = self.end.counted_at()?;
        let execution = self.execution()?;
        Some(self.end.reported.get().copied().unwrap_or_else(|| execution.measured(end)))
    }

    /// Records the backend's times. Returns the time of the count, if the request has already been counted without
    /// them.
    pub(crate) fn report(&self, times: ReportedTimes) -> Option<Timestamp> {
        if self.is_traced {
            self.tell_reported(times);
        }
        self.end.report(times)
    }
}

/// The times of one execution. The requests of its batch share them.
///
/// The runtime records the first time. The backend records when inputs are ready
/// ([`ExecutionTimes::compute_started`]) and when outputs are computed ([`ExecutionTimes::compute_ended`]). If a
/// backend records nothing, the whole execution counts as computation.
pub struct ExecutionTimes {
    /// Rows of the whole batch. `batch_stats` uses this number as its key.
    pub rows: u32,
    /// When the backend received the batch.
    pub exec_start: Timestamp,
    clock: fn() -> Timestamp,
    compute_start: AtomicU64,
    compute_end: AtomicU64,
    taken: AtomicBool,
    count: Rendezvous,
    /// The traces of the requests of the batch that are traced and have not ended.
    traces: Vec<WeakTraceContext>,
}

impl ExecutionTimes {
    /// An execution of `rows` rows that starts now, as `clock` reports it.
    pub fn start(rows: u32, clock: fn() -> Timestamp) -> Self {
        Self {
            rows,
            exec_start: clock(),
            clock,
            compute_start: AtomicU64::new(0),
            compute_end: AtomicU64::new(0),
            taken: AtomicBool::new(false),
            count: Rendezvous::default(),
            traces: Vec::new(),
        }
    }

    /// The same execution with the traces of its requests.
    #[must_use]
    pub fn traced(self, traces: impl Iterator<Item = TraceContext>) -> Self {
        Self { traces: traces.map(|trace| trace.downgrade()).collect(), ..self }
    }

    /// Records that the inputs are ready and the model begins to compute.
    pub fn compute_started(&self) {
        self.note(&self.compute_start, TraceActivity::ComputeInputEnd);
    }

    /// Records that the model has computed and the backend sends the outputs.
    pub fn compute_ended(&self) {
        self.note(&self.compute_end, TraceActivity::ComputeOutputStart);
    }

    /// A backend that runs a batch in parts records each time more than once. The statistics use the last time. The
    /// traces receive the first one.
    fn note(&self, time: &AtomicU64, activity: TraceActivity) {
        let at = (self.clock)();
        let first = time.swap(at.as_nanos(), Relaxed) == 0;
        if first {
            self.traces
                .iter()
                .filter_map(WeakTraceContext::upgrade)
                .for_each(|trace| trace.tell(activity, at));
        }
    }

    fn tell_missing(&self, trace: &TraceContext, now: Timestamp) {
        if self.compute_start.load(Relaxed) == 0 {
            trace.tell(TraceActivity::ComputeInputEnd, self.exec_start);
        }
        if self.compute_end.load(Relaxed) == 0 {
            trace.tell(TraceActivity::ComputeOutputStart, now);
        }
    }

    /// When the inputs were ready.
    pub fn compute_start(&self) -> Timestamp {
        match self.compute_start.load(Relaxed) {
            0 => self.exec_start,
            nanos => Timestamp::from_nanos(nanos),
        }
    }

    /// When the outputs were computed, or `now` if the backend did not record it.
    pub fn compute_end(&self, now: Timestamp) -> Timestamp {
        match self.compute_end.load(Relaxed) {
            0 => now,
            nanos => Timestamp::from_nanos(nanos),
        }
    }

    /// The times that the runtime has measured, of an execution that has ended at `now`.
    pub fn measured(&self, now: Timestamp) -> ReportedTimes {
        let (compute_start, compute_end) = (self.compute_start(), self.compute_end(now));
        ReportedTimes { exec_start: self.exec_start, compute_start, compute_end, exec_end: now }
    }

    /// Returns true for the first caller only. The first request that finishes counts the execution.
    pub fn count_once(&self) -> bool {
        !self.taken.swap(true, Relaxed)
    }

    /// Records that the execution has been counted with the times that the runtime measured. Only the caller for
    /// which [`ExecutionTimes::count_once`] returned true calls it. Returns the backend's times, if the backend has
    /// reported them.
    pub fn counted(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.count.count(at)
    }

    /// Records the backend's times. Returns the time of the count, if the execution has already been counted without
    /// them.
    pub(crate) fn report(&self, times: ReportedTimes) -> Option<Timestamp> {
        self.count.report(times)
    }
}

impl fmt::Debug for ExecutionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionTimes")
            .field("rows", &self.rows)
            .field("exec_start", &self.exec_start)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: ReportedTimes = ReportedTimes {
        exec_start: Timestamp::from_nanos(1),
        compute_start: Timestamp::from_nanos(2),
        compute_end: Timestamp::from_nanos(3),
        exec_end: Timestamp::from_nanos(4),
    };

    #[test]
    fn the_second_of_count_and_report_gets_the_value_of_the_first() {
        let report_first = Rendezvous::default();
        assert_eq!(report_first.report(TIMES), None);
        assert_eq!(report_first.count(Timestamp::from_nanos(9)), Some(TIMES));
        let count_first = Rendezvous::default();
        assert_eq!(count_first.count(Timestamp::from_nanos(9)), None);
        assert_eq!(count_first.report(TIMES), Some(Timestamp::from_nanos(9)));
    }

    #[test]
    fn a_second_report_is_ignored() {
        let rendezvous = Rendezvous::default();
        assert_eq!(rendezvous.count(Timestamp::from_nanos(9)), None);
        assert_eq!(rendezvous.report(TIMES), Some(Timestamp::from_nanos(9)));
        assert_eq!(rendezvous.report(TIMES), None);
    }

    #[derive(Default)]
    struct RecordedTimes(crate::lock::Mutex<Vec<(TraceActivity, u64)>>);

    impl crate::TraceSink for RecordedTimes {
        fn reached(&self, activity: TraceActivity, at: Timestamp) {
            self.0.lock().push((activity, at.as_nanos()));
        }

        fn identity(&self) -> crate::TraceIdentity {
            crate::TraceIdentity::unique(0)
        }
    }

    #[test]
    fn a_trace_gets_each_time_when_it_happens_and_the_others_at_the_end() {
        use TraceActivity::*;
        let told = Arc::new(RecordedTimes::default());
        let trace = TraceContext::new(told.clone());
        let said = || std::mem::take(&mut *told.0.lock());
        let timeline = Timeline::new(Timestamp::from_nanos(1), 1).traced(Some(trace.clone()));
        assert_eq!(said(), [(RequestStart, 1)]);
        timeline.queued(Timestamp::from_nanos(2), &[]);
        assert_eq!(said(), [(QueueStart, 2)]);
        let times =
            Arc::new(ExecutionTimes::start(1, || Timestamp::from_nanos(3)).traced(std::iter::once(trace)));
        timeline.executing(times.clone());
        assert_eq!(said(), [(ComputeStart, 3)]);
        times.compute_started();
        times.compute_started();
        assert_eq!(said(), [(ComputeInputEnd, 3)]);
        timeline.ended(Timestamp::from_nanos(9));
        assert_eq!(said(), [(ComputeOutputStart, 9), (ComputeEnd, 9), (RequestEnd, 9)]);
    }

    fn traced(told: &Arc<RecordedTimes>) -> Timeline {
        let trace = TraceContext::new(told.clone());
        let timeline = Timeline::new(Timestamp::from_nanos(1), 1).traced(Some(trace));
        timeline.executing(Arc::new(ExecutionTimes::start(1, || Timestamp::from_nanos(8))));
        told.0.lock().clear();
        timeline
    }

    #[test]
    fn a_backend_that_holds_a_request_reports_its_times_before_the_trace_ends() {
        use TraceActivity::*;
        let told = Arc::new(RecordedTimes::default());
        let timeline = traced(&told);
        timeline.held();
        timeline.ended(Timestamp::from_nanos(5));
        assert!(told.0.lock().is_empty());
        timeline.report(TIMES);
        assert_eq!(*told.0.lock(), [(ComputeInputEnd, 2), (ComputeOutputStart, 3), (ComputeEnd, 4)]);
        timeline.released();
        assert_eq!(told.0.lock()[3..], [(RequestEnd, 8)]);
        assert!(timeline.trace().is_none());
    }

    #[test]
    fn a_backend_that_reports_nothing_leaves_the_times_of_the_server() {
        use TraceActivity::*;
        let told = Arc::new(RecordedTimes::default());
        let timeline = traced(&told);
        timeline.held();
        timeline.ended(Timestamp::from_nanos(9));
        timeline.released();
        let times = [(ComputeInputEnd, 8), (ComputeOutputStart, 9), (ComputeEnd, 9), (RequestEnd, 8)];
        assert_eq!(*told.0.lock(), times);
    }

    #[test]
    fn a_request_that_is_released_before_its_last_response_ends_with_that_response() {
        use TraceActivity::*;
        let told = Arc::new(RecordedTimes::default());
        let timeline = traced(&told);
        timeline.held();
        timeline.report(TIMES);
        timeline.released();
        assert_eq!(told.0.lock().len(), 3);
        timeline.ended(Timestamp::from_nanos(9));
        assert_eq!(told.0.lock()[3..], [(RequestEnd, 9)]);
    }

    #[test]
    fn a_trace_that_outlives_its_request_gets_no_time_twice() {
        use TraceActivity::*;
        let told = Arc::new(RecordedTimes::default());
        let trace = TraceContext::new(told.clone());
        let timeline = Timeline::new(Timestamp::from_nanos(1), 1).traced(Some(trace.clone()));
        let times = Arc::new(
            ExecutionTimes::start(1, || Timestamp::from_nanos(3)).traced(std::iter::once(trace.clone())),
        );
        timeline.executing(times.clone());
        timeline.ended(Timestamp::from_nanos(9));
        // The backend still has the batch.
        times.compute_started();
        times.compute_ended();
        let names: Vec<_> = told.0.lock().iter().map(|(activity, _)| *activity).collect();
        assert_eq!(
            names,
            [RequestStart, ComputeStart, ComputeInputEnd, ComputeOutputStart, ComputeEnd, RequestEnd]
        );
    }

    #[test]
    fn a_request_whose_work_others_do_has_no_times_of_an_execution() {
        let told = Arc::new(RecordedTimes::default());
        let timeline =
            Timeline::new(Timestamp::from_nanos(1), 1).traced(Some(TraceContext::new(told.clone())));
        timeline.executed_by_members(Arc::new(ExecutionTimes::start(1, || Timestamp::from_nanos(3))));
        timeline.report(TIMES);
        timeline.ended(Timestamp::from_nanos(9));
        assert_eq!(*told.0.lock(), [(TraceActivity::RequestStart, 1), (TraceActivity::RequestEnd, 9)]);
    }
}
