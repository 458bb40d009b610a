//! The thread that serves the worker of an instance: it reads what the worker sends, watches the worker, and starts
//! another one when the worker has ended.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    answers::{RequestAnswerer, fail_all},
    channel::WorkerFrameKind,
    frames::ReadOutcome,
    inferences::Inferences,
    link::InstanceLink,
    marshal::{DamagedMessage, MarshalValue},
    messages::WorkerItem,
    model_context::ModelContext,
    process::exit_text,
    restart::RestartPolicy,
    services::log_line,
    worker::{CommandFailure, Wakeup, Worker, command_frame},
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
    fn serve_until_end(&mut self, mut worker: Worker) -> std::ops::ControlFlow<()> {
        let end = self.serve(&mut worker);
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
        fail_all(&worker, &self.link.unhealthy());
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
    fn serve(&self, worker: &mut Worker) -> WorkerEnd {
        let mut health = WorkerHealth::default();
        let mut inferences = Inferences::new(worker.channel.clone(), self.model.clone());
        loop {
            if self.link.is_ending() {
                return WorkerEnd::Unwanted;
            }
            match self.read_all(worker, &mut inferences) {
                Ok(true) => {}
                Ok(false) => return WorkerEnd::Ended,
                Err(damage) => return WorkerEnd::Unhealthy(damage.to_string()),
            }
            let interval = if self.link.busy_time().is_some() { BUSY_INTERVAL } else { IDLE_INTERVAL };
            let limit = health.next_look(interval);
            let Wakeup { socket, process, alarm } = worker.wait(Some(limit), true);
            if alarm {
                inferences.proceed();
                worker.services.answer_finished(&worker.channel);
            }
            if process && !socket {
                return WorkerEnd::Ended;
            }
            if let Err(reason) = self.look_after(worker, &mut health, interval) {
                return WorkerEnd::Unhealthy(reason);
            }
        }
    }

    /// Reads and answers what the socket has. False if the worker has closed it.
    fn read_all(&self, worker: &mut Worker, inferences: &mut Inferences) -> Result<bool, DamagedMessage> {
        loop {
            let outcome = worker.reader.read(worker.channel.socket());
            while let Some(frame) =
                worker.reader.next_frame().map_err(|()| DamagedMessage("its length is out of range"))?
            {
                self.answer(worker, inferences, &frame)?;
            }
            match outcome {
                ReadOutcome::Some => {}
                ReadOutcome::Nothing => return Ok(true),
                ReadOutcome::Closed => return Ok(false),
            }
        }
    }

    /// Answers the items of a frame. The worker gets its next batches first, so that it works meanwhile.
    fn answer(
        &self,
        worker: &mut Worker,
        inferences: &mut Inferences,
        frame: &[u8],
    ) -> Result<(), DamagedMessage> {
        let value = MarshalValue::read(frame)?;
        let items = value.as_list()?.iter().map(WorkerItem::of).collect::<Result<Vec<_>, _>>()?;
        let ended = items.iter().filter(|item| matches!(item, WorkerItem::Done { .. })).count();
        if ended > 0
            && let Some((channel, calls)) = self.link.ended(ended)
        {
            self.link.send(&channel, calls);
        }
        for item in items {
            let answerer = RequestAnswerer { worker, link: &self.link, model: &self.model };
            match item {
                WorkerItem::Done { call, error, answers } => answerer.done(call, error, &answers),
                WorkerItem::Send { handle, response, is_last } => {
                    answerer.sent(handle, response.as_ref(), is_last);
                }
                WorkerItem::Abandoned { handle } => answerer.abandoned(handle),
                WorkerItem::Infer { id, request, decoupled } => {
                    inferences.begin(id, &request, decoupled, &worker.outputs);
                }
                WorkerItem::CancelInfer { id } => inferences.cancel(id),
                WorkerItem::Taken { id, count } => inferences.taken(id, count),
                WorkerItem::Log { level, file, line, text } => log_line(level, file, line, text),
                WorkerItem::Ask { reply, name, arguments } => {
                    worker.services.ask(&worker.channel, reply, name, arguments)?;
                }
                WorkerItem::Tell { name, arguments } => worker.services.tell(name, arguments)?,
                WorkerItem::Freed(offsets) => {
                    let mut input = worker.channel.input.lock();
                    offsets.into_iter().for_each(|offset| input.give_back(offset));
                }
                WorkerItem::WantsSpace => worker.channel.give_back(&[], true),
                // No command waits for a result.
                WorkerItem::Result(_) => {}
            }
        }
        if ended > 0 {
            self.link.notify();
        }
        Ok(())
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
