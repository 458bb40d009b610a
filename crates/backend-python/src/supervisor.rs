//! The thread that serves the worker of an instance: it reads what the worker sends, watches the worker, and starts
//! another one when the worker has ended.
use std::{
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use crate::{
    answers::{RequestAnswerer, fail_all},
    channel::WorkerFrameKind,
    frames::ReadOutcome,
    health::WorkerHealth,
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

impl From<DamagedMessage> for WorkerEnd {
    fn from(damage: DamagedMessage) -> Self {
        Self::Unhealthy(damage.to_string())
    }
}

/// What the thread knows of the worker that it serves.
struct WorkerService {
    health: WorkerHealth,
    inferences: Inferences,
}

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
                    self.model.restart_counter.count();
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
        let inferences = Inferences::new(worker.channel.clone(), self.model.clone());
        let mut service = WorkerService { health: WorkerHealth::default(), inferences };
        loop {
            if self.link.is_ending() {
                return WorkerEnd::Unwanted;
            }
            let waited =
                self.read_all(worker, &mut service).and_then(|()| self.wait(worker, &mut service, true));
            match waited {
                Ok(Wakeup { process: true, socket: false, .. }) => return WorkerEnd::Ended,
                Ok(_) => {}
                Err(end) => return end,
            }
        }
    }

    /// Waits for news of the worker, of other models and of the instance, and watches the worker meanwhile. Its messages are
    /// no news, and its execution takes no time, unless the thread `reads`.
    fn wait(
        &self,
        worker: &mut Worker,
        service: &mut WorkerService,
        reads: bool,
    ) -> Result<Wakeup, WorkerEnd> {
        let WorkerService { health, inferences } = service;
        let busy = || if reads { self.link.busy_time() } else { None };
        let limit = health.next_look(busy());
        let wakeup = worker.wait(Some(limit), reads);
        if wakeup.alarm {
            inferences.proceed();
            worker.services.answer_finished(&worker.channel);
        }
        let looked = health.look(&worker.process, &self.model.parameters, busy());
        looked.map(|()| wakeup).map_err(WorkerEnd::Unhealthy)
    }

    /// Waits until the client of a request has read enough, if the request demands that. The worker is watched, and not read:
    /// then it waits, too.
    fn wait_for_client(
        &self,
        worker: &mut Worker,
        service: &mut WorkerService,
        handle: u64,
    ) -> Result<(), WorkerEnd> {
        let responder = worker.channel.calls.lock().request(handle).map(|request| request.responder.clone());
        let Some(responder) = responder.filter(|responder| !responder.has_capacity()) else { return Ok(()) };
        let waker = Waker::from(worker.channel.alarm().clone());
        let began = Instant::now();
        while responder.poll_capacity(&mut Context::from_waker(&waker)).is_pending() {
            if self.link.is_ending() {
                return Err(WorkerEnd::Unwanted);
            }
            let Wakeup { socket, process, .. } = self.wait(worker, service, false)?;
            if socket || process {
                return Err(WorkerEnd::Ended);
            }
        }
        self.link.waited_for_client(began.elapsed());
        Ok(())
    }

    /// Reads and answers what the socket has.
    fn read_all(&self, worker: &mut Worker, service: &mut WorkerService) -> Result<(), WorkerEnd> {
        loop {
            let outcome = worker.reader.read(worker.channel.socket());
            while let Some(frame) =
                worker.reader.next_frame().map_err(|()| DamagedMessage("its length is out of range"))?
            {
                self.answer(worker, service, &frame)?;
            }
            match outcome {
                ReadOutcome::Some => {}
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::Closed => return Err(WorkerEnd::Ended),
            }
        }
    }

    /// Answers the items of a frame. The worker gets its next batches first, so that it works meanwhile.
    fn answer(
        &self,
        worker: &mut Worker,
        service: &mut WorkerService,
        frame: &[u8],
    ) -> Result<(), WorkerEnd> {
        let value = MarshalValue::read(frame)?;
        let items = value.as_list()?.iter().map(WorkerItem::of).collect::<Result<Vec<_>, _>>()?;
        let ended = items.iter().filter(|item| matches!(item, WorkerItem::Done { .. })).count();
        if ended > 0
            && let Some((channel, calls)) = self.link.ended(ended)
        {
            self.link.send(&channel, calls);
        }
        for item in items {
            if let WorkerItem::Send { handle, is_last: false, .. } = item {
                self.wait_for_client(worker, service, handle)?;
            }
            let inferences = &mut service.inferences;
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
}
