//! The thread that serves the worker of an instance: it reads what the worker sends, watches the worker, and starts
//! another one when the worker has ended.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    answers::fail_all,
    channel::WorkerFrameKind,
    link::InstanceLink,
    model_context::ModelContext,
    process::exit_text,
    restart::RestartPolicy,
    watch::Wakeup,
    worker::{CommandFailure, Worker, command_frame},
};

/// Serves one instance, worker after worker.
pub(crate) struct Supervisor {
    pub(crate) instance: String,
    pub(crate) model: Arc<ModelContext>,
    pub(crate) link: Arc<InstanceLink>,
    /// The arguments of `initialize`, as JSON.
    pub(crate) arguments: String,
    pub(crate) restarts: RestartPolicy,
}

/// Why a worker is not served any more.
enum WorkerEnd {
    /// The instance ends.
    Unwanted,
    /// The process has ended, or has closed its socket.
    Ended,
    /// The server ends the process, for this reason.
    Unhealthy(String),
}

/// How often the server looks at a worker that has work, and at one that has none.
const BUSY_INTERVAL: Duration = Duration::from_millis(200);
const IDLE_INTERVAL: Duration = Duration::from_millis(300);

/// How long a process may be stopped.
const STOPPED_LIMIT: Duration = Duration::from_millis(400);

impl Supervisor {
    /// Serves workers until the instance ends.
    pub(crate) fn run(mut self, first: Worker) {
        let mut worker = Some(first);
        loop {
            if let Some(running) = worker.take()
                && self.serve_until_end(running).is_break()
            {
                return;
            }
            match self.start_again() {
                Some(started) => {
                    self.link.worker_started(started.channel.clone());
                    worker = Some(started);
                }
                None if self.link.is_ending() => return,
                None => {}
            }
        }
    }

    /// Serves one worker. Breaks if the instance has ended.
    fn serve_until_end(&mut self, worker: Worker) -> std::ops::ControlFlow<()> {
        let end = self.serve(&worker);
        let id = worker.process.id();
        match end {
            WorkerEnd::Unwanted => {
                worker.finalize(&self.instance, self.model.settings.process_timeout);
                return std::ops::ControlFlow::Break(());
            }
            WorkerEnd::Ended => {}
            WorkerEnd::Unhealthy(reason) => {
                log::error!("the process {id} of instance '{}' is ended: {reason}", self.instance);
            }
        }
        let lifetime = worker.started.elapsed();
        let pause = self.restarts.ended_after(lifetime);
        self.link.worker_ended(Instant::now() + pause);
        worker.channel.close();
        worker.channel.dialog.lock().end();
        fail_all(&worker.channel, &self.link.unhealthy());
        let Worker { process, .. } = worker;
        let how = exit_text(process.end());
        log::error!(
            "the process {id} of instance '{}' has ended ({how}), another one starts in {} s",
            self.instance,
            pause.as_secs()
        );
        self.wait_for(pause);
        std::ops::ControlFlow::Continue(())
    }

    /// Waits for a time, or for the end of the instance. Requests that wait too long are answered.
    fn wait_for(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        loop {
            let late = self.link.refuse_late();
            let now = Instant::now();
            if now >= deadline || self.link.is_ending() {
                return;
            }
            let until = late.map_or(deadline, |late| late.min(deadline));
            self.link.alarm.wait(until.saturating_duration_since(now));
        }
    }

    /// Starts a worker. `None` if it cannot be started; then the pause before the next start is over.
    fn start_again(&mut self) -> Option<Worker> {
        if self.link.is_ending() {
            return None;
        }
        let launched = Worker::launch(&self.model, &self.instance, &self.link.alarm);
        let failure = match launched {
            Ok(mut worker) => {
                let frame = command_frame(WorkerFrameKind::Initialize, &[&self.arguments]);
                let link = self.link.clone();
                match worker.command(frame, None, || link.is_ending()) {
                    Ok(_) => {
                        worker.started = Instant::now();
                        return Some(worker);
                    }
                    Err(CommandFailure::Refused(text)) => text,
                    Err(failure) => format!("{failure:?}"),
                }
            }
            Err(error) => error.message.into_owned(),
        };
        if self.link.is_ending() {
            return None;
        }
        let pause = self.restarts.ended_after(Duration::ZERO);
        self.link.worker_ended(Instant::now() + pause);
        log::error!(
            "the process of instance '{}' could not be started again, the next start is in {} s: {failure}",
            self.instance,
            pause.as_secs()
        );
        self.wait_for(pause);
        None
    }

    /// Serves a worker until it ends or must end.
    fn serve(&self, worker: &Worker) -> WorkerEnd {
        let mut health = WorkerHealth::default();
        let channel = &worker.channel;
        // The result of the last command may have come together with something else.
        let mut wakeup = Wakeup { socket: true, ..Wakeup::default() };
        loop {
            if self.link.is_ending() {
                return WorkerEnd::Unwanted;
            }
            if wakeup.socket {
                match channel.dialog.lock().read_all(channel, &self.link) {
                    Ok(true) => {}
                    Ok(false) => return WorkerEnd::Ended,
                    Err(damage) => return WorkerEnd::Unhealthy(damage.to_string()),
                }
            }
            if wakeup.alarm {
                channel.dialog.lock().proceed(channel);
            }
            if wakeup.process && !wakeup.socket {
                return WorkerEnd::Ended;
            }
            let interval = if self.link.busy_time().is_some() { BUSY_INTERVAL } else { IDLE_INTERVAL };
            if let Err(reason) = self.look_after(worker, &mut health, interval) {
                return WorkerEnd::Unhealthy(reason);
            }
            wakeup = channel.wait(Some(health.next_look(interval)));
        }
    }

    /// Looks at the process from time to time.
    ///
    /// # Errors
    /// The reason why the process must be ended.
    fn look_after(
        &self,
        worker: &Worker,
        health: &mut WorkerHealth,
        interval: Duration,
    ) -> Result<(), String> {
        let now = Instant::now();
        let parameters = &self.model.parameters;
        let busy = self.link.busy_time();
        if let (Some(limit), Some(busy)) = (parameters.execute_limit, busy)
            && busy > limit
        {
            return Err(format!("an execution takes longer than {} s", limit.as_secs_f64()));
        }
        if now < health.looked + interval {
            return Ok(());
        }
        health.looked = now;
        let Some(status) = worker.process.status() else { return Ok(()) };
        if !status.is_stopped {
            health.stopped_since = None;
        } else if now - *health.stopped_since.get_or_insert(now) >= STOPPED_LIMIT {
            return Err("a signal has stopped it".to_owned());
        }
        let used = health.processor_time_of_execution(busy.map(|busy| now - busy), status.processor_time);
        match parameters.processor_limit {
            Some(limit) if used > limit => {
                Err(format!("an execution uses more than {} s of processor time", limit.as_secs_f64()))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// What earlier looks at a process have found.
struct WorkerHealth {
    looked: Instant,
    stopped_since: Option<Instant>,
    /// The processor time at the last look.
    processor_time: Duration,
    /// When the latest execution began, and the processor time at the look before.
    execution: Option<(Instant, Duration)>,
}

impl Default for WorkerHealth {
    fn default() -> Self {
        Self { looked: Instant::now(), stopped_since: None, processor_time: Duration::MAX, execution: None }
    }
}

impl WorkerHealth {
    /// How long the thread may wait before the next look.
    fn next_look(&self, interval: Duration) -> Duration {
        (self.looked + interval).saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
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
