//! The batches of an instance: those that wait for its worker, and how many the worker has.
//!
//! The thread of the instance adds batches, and waits while the worker has as many as it may. The thread that serves the
//! worker reports what has ended, takes what waits, and tells when the worker has ended and when it is there again.
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use config::ModelConfig;
use inference::{
    backend::Batch,
    lock::{Condvar, Mutex, MutexGuard},
};
use vocabulary::{Error, FailureReason};

use crate::{
    failure_log::FailureLog,
    pace::ExecutionPace,
    session::{batches::send_batches, readiness::ANSWER_LIMIT, worker_session::WorkerSession},
    wakeup_fd::WakeupFd,
};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct InstanceQueue {
    /// The name of the instance, for errors.
    instance: String,
    pub(crate) config: Arc<ModelConfig>,
    state: Mutex<InstanceQueueState>,
    changed: Condvar,
    pub(crate) alarm: Arc<WakeupFd>,
    failures: Mutex<FailureLog>,
}

#[derive(Debug)]
struct InstanceQueueState {
    phase: WorkerPhase,
    /// The instance gets no more batches. It ends when all that it was given has ended.
    is_leaving: bool,
    waiting: VecDeque<WaitingCall>,
    /// Batches that the worker has.
    in_flight: usize,
    /// When the worker got the batches that it has.
    sent: Instant,
    /// When a thread that has read an answer itself was ready for the next execution.
    free_since: Instant,
    pace: ExecutionPace,
}

/// What has become of the worker.
#[derive(Debug, Clone)]
enum WorkerPhase {
    Running(Arc<WorkerSession>),
    /// It has ended, or starts again. It is not expected before this time.
    Down {
        until: Instant,
    },
}

/// A batch that waits for a worker.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) batch: Batch,
    pub(crate) since: Instant,
}

impl WaitingCall {
    pub(crate) fn fail(self, error: &Error) {
        for execution in self.batch.executions {
            execution.fail(error.clone());
        }
    }

    /// The longest time that a request of the batch may wait for a worker that is started again.
    pub(crate) fn patience(&self, at_most: Duration) -> Duration {
        let timeouts = self.batch.executions.iter().filter_map(|execution| execution.request.timeout);
        timeouts.filter(|timeout| !timeout.is_zero()).chain([at_most]).min().unwrap_or(at_most)
    }
}

/// What becomes of a batch that was added.
pub(crate) struct AddedBatch {
    /// The batches that the worker gets now. [`InstanceQueue::send`] sends them.
    pub(crate) due: Option<DueBatches>,
    /// The thread that sends them should read the answer, which comes at once.
    pub(crate) reads: bool,
    /// The instance accepts no further batch now.
    pub(crate) waits: bool,
}

/// Batches for a worker, which counts them already.
pub(crate) type DueBatches = (Arc<WorkerSession>, Vec<WaitingCall>);

/// A request waits so long for a worker that starts again, unless its own timeout is shorter.
const MOST_PATIENCE: Duration = Duration::from_secs(10);

impl InstanceQueue {
    pub(crate) fn new(
        instance: &str,
        config: Arc<ModelConfig>,
        session: Arc<WorkerSession>,
        alarm: Arc<WakeupFd>,
        pace: ExecutionPace,
    ) -> Self {
        let state = InstanceQueueState {
            phase: WorkerPhase::Running(session),
            is_leaving: false,
            waiting: VecDeque::new(),
            in_flight: 0,
            sent: Instant::now(),
            free_since: Instant::now(),
            pace,
        };
        Self {
            instance: instance.to_owned(),
            config,
            state: Mutex::new(state),
            changed: Condvar::new(),
            alarm,
            failures: Mutex::default(),
        }
    }

    /// Writes the error of an execution to the log, but not too many of them.
    pub(crate) fn log_failure(&self, error: &str) {
        let line = self.failures.lock().line(error, Instant::now());
        if let Some(line) = line {
            log::error!("{line}");
        }
    }

    /// Triton's text for a worker that has ended.
    pub(crate) fn unhealthy(&self) -> Error {
        unhealthy(&self.instance)
    }

    /// Adds a batch.
    pub(crate) fn add(&self, batch: Batch) -> AddedBatch {
        let mut state = self.state.lock();
        let (waits, now) = (state.would_wait(), Instant::now());
        let idle = now.saturating_duration_since(state.free_since);
        let reads = state.pace.answers_soon(idle) && !self.config.decoupled;
        state.waiting.push_back(WaitingCall { batch, since: now });
        AddedBatch { due: state.take_due(), reads, waits }
    }

    /// Blocks until the instance may take another batch.
    pub(crate) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        loop {
            match &state.phase {
                WorkerPhase::Running(_) => {
                    if state.in_flight + state.waiting.len() < state.pace.capacity() {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
                WorkerPhase::Down { until } => {
                    let until = *until;
                    let (late, deadline) = state.take_late(until);
                    if !late.is_empty() {
                        MutexGuard::unlocked(&mut state, || self.refuse(late));
                        continue;
                    }
                    let Some(deadline) = deadline else { return };
                    let _ = self.changed.wait_until(&mut state, deadline);
                }
            }
        }
    }

    /// Whether the worker has a batch.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.state.lock().in_flight > 0
    }

    /// A thread that has read an answer itself is ready for the next execution.
    pub(crate) fn reading_ended(&self) {
        self.state.lock().free_since = Instant::now();
    }

    /// Whether the instance would accept no further batch after the next one.
    pub(crate) fn would_wait(&self) -> bool {
        self.state.lock().would_wait()
    }

    /// Batches of the worker have ended. Returns what the worker can have next; [`InstanceQueue::send`] sends it.
    pub(crate) fn ended(&self, count: usize) -> Option<DueBatches> {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(count);
        let now = Instant::now();
        let taken = now - state.sent;
        let is_alone = count == 1 && state.waiting.is_empty();
        state.pace.ended(count, taken, is_alone);
        state.sent = now;
        state.take_due()
    }

    /// Tells the thread of the instance that batches have ended, after their requests were answered.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Sends batches to the worker.
    pub(crate) fn send(&self, session: &WorkerSession, calls: Vec<WaitingCall>) {
        let count = calls.len();
        let _ends_worker = EndedByPanic(session);
        let batches = calls.into_iter().map(|call| call.batch);
        let sent = send_batches(session, &self.config, batches, &self.unhealthy());
        if sent < count {
            // The requests of a batch have all ended. Its place is free.
            if let Some((session, calls)) = self.ended(count - sent) {
                self.send(&session, calls);
            }
            self.notify();
        }
    }

    /// How long the worker has had a batch without an end of one.
    pub(crate) fn busy_time(&self) -> Option<Duration> {
        let state = self.state.lock();
        (state.in_flight > 0).then(|| state.sent.elapsed())
    }

    /// The worker could not go on for so long, because a client did not read. This is no time of its batches.
    pub(crate) fn waited_for_client(&self, time: Duration) {
        self.state.lock().sent += time;
    }

    /// The worker has ended. The caller answers the requests that the worker had.
    pub(crate) fn worker_ended(&self, until: Instant) {
        let mut state = self.state.lock();
        state.phase = WorkerPhase::Down { until };
        state.in_flight = 0;
        drop(state);
        self.changed.notify_all();
    }

    /// Answers the batches that cannot wait any longer for a worker that has ended. Returns when the next one cannot.
    pub(crate) fn refuse_late(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let WorkerPhase::Down { until } = state.phase else { return None };
        let (late, next) = state.take_late(until);
        drop(state);
        self.refuse(late);
        next
    }

    fn refuse(&self, late: Vec<WaitingCall>) {
        let mut error = unhealthy(&self.instance);
        error.code = vocabulary::ErrorCode::Unavailable;
        late.into_iter().for_each(|call| call.fail(&error));
    }

    /// The worker is there again.
    pub(crate) fn worker_started(&self, session: Arc<WorkerSession>) {
        let mut state = self.state.lock();
        state.phase = WorkerPhase::Running(session);
        let due = state.take_due();
        drop(state);
        if let Some((session, calls)) = due {
            self.send(&session, calls);
        }
        self.changed.notify_all();
    }

    /// The instance leaves: it gets no more batches. The thread that serves the worker ends when all that the instance was
    /// given has ended.
    pub(crate) fn leave(&self) {
        self.state.lock().is_leaving = true;
        self.alarm.ring();
    }

    /// Whether the instance leaves, and no batch of it waits or is executed. The worker may still have requests that only
    /// senders answer.
    pub(crate) fn has_left(&self) -> bool {
        let state = self.state.lock();
        state.is_leaving && state.waiting.is_empty() && state.in_flight == 0
    }

    /// Asks whether requests can come now. A model with the function `is_ready` is asked too, which may block.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        let running = match &self.state.lock().phase {
            WorkerPhase::Running(session) => Some(session.clone()),
            WorkerPhase::Down { .. } => None,
        };
        let session = running.ok_or_else(|| self.unhealthy())?;
        session.readiness.ask(ANSWER_LIMIT).map_err(Error::unavailable)
    }
}

/// Ends a worker if a panic interrupts its sender. Nobody knows then which batches the worker has got, and the instance
/// would wait for all of them. The supervisor fails the requests of a worker that has ended.
struct EndedByPanic<'a>(&'a WorkerSession);

impl Drop for EndedByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Triton's error for a worker that has ended.
pub(crate) fn unhealthy(instance: &str) -> Error {
    Error::internal(format!("Stub process '{instance}' is not healthy.")).because(FailureReason::Backend)
}

impl InstanceQueueState {
    fn would_wait(&self) -> bool {
        let is_running = matches!(self.phase, WorkerPhase::Running(_));
        !is_running || self.in_flight + self.waiting.len() + 1 >= self.pace.capacity()
    }

    /// The batches that the worker may have now.
    fn take_due(&mut self) -> Option<DueBatches> {
        let WorkerPhase::Running(session) = &self.phase else { return None };
        let concurrent = self.pace.concurrent();
        let count = match concurrent {
            // All that wait go in one message, when the last one has ended.
            1 if self.in_flight == 0 => self.waiting.len(),
            1 => 0,
            concurrent => concurrent.saturating_sub(self.in_flight).min(self.waiting.len()),
        };
        if count == 0 {
            return None;
        }
        if self.in_flight == 0 {
            self.sent = Instant::now();
        }
        self.in_flight += count;
        Some((session.clone(), self.waiting.drain(..count).collect()))
    }

    /// Takes the batches out that cannot wait any longer for a worker that is expected at `until`. Returns them, and when the
    /// next one cannot.
    fn take_late(&mut self, until: Instant) -> (Vec<WaitingCall>, Option<Instant>) {
        let now = Instant::now();
        let limit = |call: &WaitingCall| call.since + call.patience(MOST_PATIENCE);
        let is_late = |call: &WaitingCall| until > limit(call) || limit(call) <= now;
        let (mut late, mut staying) = (Vec::new(), VecDeque::new());
        for call in std::mem::take(&mut self.waiting) {
            if is_late(&call) { late.push(call) } else { staying.push_back(call) }
        }
        self.waiting = staying;
        (late, self.waiting.iter().map(limit).min())
    }
}
