//! When a request passed each door. Written once by whoever opens the door, read once at the end.
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Relaxed},
        },
    },
    time::Duration,
};

use scheduling::Timestamp;

/// When an execution passed its doors, by the backend's own account (`TRITONBACKEND_ModelInstanceReportStatistics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedTimes {
    /// The backend got the requests.
    pub exec_start: Timestamp,
    /// Inputs were in place.
    pub compute_start: Timestamp,
    /// Outputs were computed.
    pub compute_end: Timestamp,
    /// Outputs were handed out.
    pub exec_end: Timestamp,
}

impl ReportedTimes {
    /// Until inputs were in place.
    pub fn input(&self) -> Duration {
        self.compute_start - self.exec_start
    }

    /// From there until outputs were computed.
    pub fn infer(&self) -> Duration {
        self.compute_end - self.compute_start
    }

    /// From there until outputs were handed out.
    pub fn output(&self) -> Duration {
        self.exec_end - self.compute_end
    }
}

/// Two may come in any order, on any threads: whoever counts something, and the backend that reports when it happened.
/// The second one learns what the first one left.
#[derive(Debug, Default)]
struct Rendezvous {
    counted: AtomicU64,
    reported: OnceLock<ReportedTimes>,
    second_comes: AtomicBool,
}

impl Rendezvous {
    /// Called once. Gives what has been reported before.
    fn count(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.counted.store(at.as_nanos(), Relaxed);
        let is_second = self.second_comes.swap(true, AcqRel);
        if is_second { self.reported.get().copied() } else { None }
    }

    /// Gives when it was counted, if it was before. Only the first report counts.
    fn report(&self, times: ReportedTimes) -> Option<Timestamp> {
        self.reported.set(times).ok()?;
        let is_second = self.second_comes.swap(true, AcqRel);
        is_second.then(|| Timestamp::from_nanos(self.counted.load(Relaxed)))
    }
}

/// The doors of one request: arrival, queue, and the execution it became part of.
#[derive(Debug)]
pub struct Timeline {
    /// When the request was accepted from its caller.
    pub request_start: Timestamp,
    /// Rows the request brings; 1 for models without a batch dimension.
    pub rows: u32,
    queue_start: AtomicU64,
    execution: OnceLock<Arc<ExecutionTimes>>,
    end: Rendezvous,
}

impl Timeline {
    /// A request of `rows` rows that was accepted at `request_start`.
    pub fn new(request_start: Timestamp, rows: u32) -> Self {
        let queue_start = AtomicU64::new(0);
        Self { request_start, rows, queue_start, execution: OnceLock::new(), end: Rendezvous::default() }
    }

    /// Notes that the request entered its queue.
    pub fn queued(&self, at: Timestamp) {
        self.queue_start.store(at.as_nanos(), Relaxed);
    }

    /// Notes that the queue has refused the request.
    pub fn not_queued(&self) {
        self.queue_start.store(0, Relaxed);
    }

    /// When the request entered its queue; its arrival if it never did.
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

    /// Notes the execution the request has become part of. The first one counts.
    pub fn executing(&self, execution_times: Arc<ExecutionTimes>) {
        let _ = self.execution.set(execution_times);
    }

    /// The execution the request has become part of, once it has.
    pub fn execution(&self) -> Option<&Arc<ExecutionTimes>> {
        self.execution.get()
    }

    /// Notes that the request has ended and has been counted, as the runtime has seen it; to be said once. Gives the
    /// backend's times, if it has reported them.
    pub fn counted(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.end.count(at)
    }

    /// Notes the backend's times. Gives when the request was counted, if it was: without them, then.
    pub(crate) fn report(&self, times: ReportedTimes) -> Option<Timestamp> {
        self.end.report(times)
    }
}

/// The doors of one execution, shared by the requests of its batch.
///
/// The runtime opens the first; the backend notes when inputs are ready ([`ExecutionTimes::compute_started`]) and when outputs
/// are computed ([`ExecutionTimes::compute_ended`]). A backend that notes nothing is taken to compute all the time.
pub struct ExecutionTimes {
    /// Rows of the whole batch; what `batch_stats` is keyed by.
    pub rows: u32,
    /// When the batch was handed to the backend.
    pub exec_start: Timestamp,
    clock: fn() -> Timestamp,
    compute_start: AtomicU64,
    compute_end: AtomicU64,
    taken: AtomicBool,
    count: Rendezvous,
}

impl ExecutionTimes {
    /// An execution of `rows` rows that starts now, by `clock`.
    pub fn start(rows: u32, clock: fn() -> Timestamp) -> Self {
        Self {
            rows,
            exec_start: clock(),
            clock,
            compute_start: AtomicU64::new(0),
            compute_end: AtomicU64::new(0),
            taken: AtomicBool::new(false),
            count: Rendezvous::default(),
        }
    }

    /// Inputs are in place; the model begins to compute.
    pub fn compute_started(&self) {
        self.compute_start.store((self.clock)().as_nanos(), Relaxed);
    }

    /// The model has computed; outputs are being handed out.
    pub fn compute_ended(&self) {
        self.compute_end.store((self.clock)().as_nanos(), Relaxed);
    }

    /// When inputs were in place.
    pub fn compute_start(&self) -> Timestamp {
        match self.compute_start.load(Relaxed) {
            0 => self.exec_start,
            nanos => Timestamp::from_nanos(nanos),
        }
    }

    /// When outputs were computed, or `now` if the backend did not say.
    pub fn compute_end(&self, now: Timestamp) -> Timestamp {
        match self.compute_end.load(Relaxed) {
            0 => now,
            nanos => Timestamp::from_nanos(nanos),
        }
    }

    /// True for the first caller only: the execution as such is counted once, by its first finished request.
    pub fn count_once(&self) -> bool {
        !self.taken.swap(true, Relaxed)
    }

    /// Notes that the execution has been counted, as the runtime has seen it; to be said by whom [`ExecutionTimes::count_once`] has
    /// told so. Gives the backend's times, if it has reported them.
    pub fn counted(&self, at: Timestamp) -> Option<ReportedTimes> {
        self.count.count(at)
    }

    /// Notes the backend's times. Gives when the execution was counted, if it was: without them, then.
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
    fn whoever_comes_second_learns_what_the_first_left() {
        let report_first = Rendezvous::default();
        assert_eq!(report_first.report(TIMES), None);
        assert_eq!(report_first.count(Timestamp::from_nanos(9)), Some(TIMES));
        let count_first = Rendezvous::default();
        assert_eq!(count_first.count(Timestamp::from_nanos(9)), None);
        assert_eq!(count_first.report(TIMES), Some(Timestamp::from_nanos(9)));
    }

    #[test]
    fn a_second_report_is_not_heard() {
        let rendezvous = Rendezvous::default();
        assert_eq!(rendezvous.count(Timestamp::from_nanos(9)), None);
        assert_eq!(rendezvous.report(TIMES), Some(Timestamp::from_nanos(9)));
        assert_eq!(rendezvous.report(TIMES), None);
    }
}
