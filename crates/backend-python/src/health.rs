//! Whether a worker that has not ended is still well: it may be stopped, or exceed a limit of its model.
use std::time::{Duration, Instant};

use crate::{process::WorkerProcess, settings::PythonParameters};

/// How often the server looks at a worker that has work, and at one that has none.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_INTERVAL: Duration = Duration::from_millis(300);

/// How long a process may be stopped. With the intervals, its requests end within a second.
const STOPPED_LIMIT: Duration = Duration::from_millis(300);

/// Notices that a signal has stopped a process.
#[derive(Default)]
pub(crate) struct StopWatch {
    stopped_since: Option<Instant>,
}

impl StopWatch {
    /// How often to look at a process that has a command.
    pub(crate) const INTERVAL: Duration = BUSY_INTERVAL;

    /// Whether a process has been stopped for too long. `is_stopped` is what a look has found.
    fn note(&mut self, is_stopped: bool, now: Instant) -> bool {
        if !is_stopped {
            self.stopped_since = None;
        }
        is_stopped && now - *self.stopped_since.get_or_insert(now) >= STOPPED_LIMIT
    }

    /// Looks at a process. Returns whether it has been stopped for too long.
    pub(crate) fn look(&mut self, process: &WorkerProcess) -> bool {
        process.status().is_some_and(|status| self.note(status.is_stopped, Instant::now()))
    }
}

/// What earlier looks at a process have found.
pub(crate) struct WorkerHealth {
    looked: Instant,
    stop_watch: StopWatch,
    /// The processor time at the last look.
    processor_time: Duration,
    /// When the latest execution began, and the processor time at the look before.
    execution: Option<(Instant, Duration)>,
}

impl Default for WorkerHealth {
    fn default() -> Self {
        let stop_watch = StopWatch::default();
        Self { looked: Instant::now(), stop_watch, processor_time: Duration::MAX, execution: None }
    }
}

impl WorkerHealth {
    /// How long the thread may wait before the next look. `busy` is how long the worker has had its work.
    pub(crate) fn next_look(&self, busy: Option<Duration>) -> Duration {
        let next = self.looked + interval(busy);
        next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Looks at the process from time to time.
    ///
    /// # Errors
    /// The reason why the process must be ended.
    pub(crate) fn look(
        &mut self,
        process: &WorkerProcess,
        parameters: &PythonParameters,
        busy: Option<Duration>,
    ) -> Result<(), String> {
        let now = Instant::now();
        if let (Some(limit), Some(busy)) = (parameters.execute_limit, busy)
            && busy > limit
        {
            return Err(format!("an execution takes longer than {} s", limit.as_secs_f64()));
        }
        if now < self.looked + interval(busy) {
            return Ok(());
        }
        self.looked = now;
        let Some(status) = process.status() else { return Ok(()) };
        if self.stop_watch.note(status.is_stopped, now) {
            return Err("a signal has stopped it".to_owned());
        }
        let used = self.processor_time_of_execution(busy.map(|busy| now - busy), status.processor_time);
        match parameters.processor_limit {
            Some(limit) if used > limit => {
                Err(format!("an execution uses more than {} s of processor time", limit.as_secs_f64()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The processor time since the last look before the execution began, if there is one.
    fn processor_time_of_execution(&mut self, begun: Option<Instant>, now: Duration) -> Duration {
        let before = std::mem::replace(&mut self.processor_time, now).min(now);
        let Some(begun) = begun else {
            self.execution = None;
            return Duration::ZERO;
        };
        // The begin is computed from the time since then, which two looks measure with different errors.
        let is_same =
            |known: &(Instant, Duration)| known.0.max(begun) - known.0.min(begun) < Duration::from_millis(1);
        let (_, at_begin) = *match self.execution.take_if(|known| is_same(known)) {
            Some(known) => self.execution.insert(known),
            None => self.execution.insert((begun, before)),
        };
        now.saturating_sub(at_begin)
    }
}

fn interval(busy: Option<Duration>) -> Duration {
    if busy.is_some() { BUSY_INTERVAL } else { IDLE_INTERVAL }
}
