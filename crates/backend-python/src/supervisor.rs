//! The thread that serves the worker of an instance: it reads what the worker sends, watches the worker, and starts
//! another one when the worker has ended.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    answering::{
        answers::fail_all,
        reading::{ReadState, SessionReader},
    },
    health::WorkerHealth,
    instance_queue::InstanceQueue,
    model_context::ModelContext,
    process::exit_text,
    restart::RestartPolicy,
    session::watch::Wakeup,
    wire::frames::WorkerFrameKind,
    worker::{CommandFailure, Worker, command_frame},
};

/// Serves one instance, worker after worker.
pub(crate) struct Supervisor {
    pub(crate) instance: String,
    pub(crate) model: Arc<ModelContext>,
    pub(crate) queue: Arc<InstanceQueue>,
    /// The arguments of `initialize`, as JSON.
    pub(crate) arguments: String,
    pub(crate) restarts: RestartPolicy,
}

/// Why a worker is not served any more.
enum WorkerEnd {
    /// The instance has left, and nothing of it is open.
    Unwanted,
    /// The process has ended, or has closed its socket.
    Ended,
    /// The server ends the process, for this reason.
    Unhealthy(String),
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
                    self.queue.worker_started(started.session.clone());
                    worker = Some(started);
                }
                None if self.queue.has_left() => return,
                None => {}
            }
        }
    }

    /// Serves one worker. Breaks if the instance has left.
    fn serve_until_end(&mut self, worker: Worker) -> std::ops::ControlFlow<()> {
        let end = self.serve(&worker);
        let id = worker.process.id();
        match end {
            WorkerEnd::Unwanted => {
                worker.finalize(&self.instance, self.model.settings.finalize_timeout);
                return std::ops::ControlFlow::Break(());
            }
            WorkerEnd::Ended => {}
            WorkerEnd::Unhealthy(reason) => {
                log::error!("the process {id} of instance '{}' is ended: {reason}", self.instance);
            }
        }
        let lifetime = worker.started.elapsed();
        let pause = self.restarts.ended_after(lifetime);
        self.queue.worker_ended(Instant::now() + pause);
        worker.session.close();
        worker.session.inbox.lock().open.inferences.end_all();
        fail_all(&worker.session, &self.queue.unhealthy());
        let how = exit_text(worker.process.end());
        if self.queue.has_left() {
            log::error!("the process {id} of instance '{}', which leaves, has ended ({how})", self.instance);
            return std::ops::ControlFlow::Break(());
        }
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
            let late = self.queue.refuse_late();
            let now = Instant::now();
            if now >= deadline || self.queue.has_left() {
                return;
            }
            let until = late.map_or(deadline, |late| late.min(deadline));
            self.queue.alarm.wait(until.saturating_duration_since(now));
        }
    }

    /// Starts a worker. `None` if it cannot be started; then the pause before the next start is over.
    fn start_again(&mut self) -> Option<Worker> {
        if self.queue.has_left() {
            return None;
        }
        let launched = Worker::launch(&self.model, &self.instance, &self.queue.alarm);
        let failure = match launched {
            Ok(mut worker) => {
                let frame = command_frame(WorkerFrameKind::Initialize, &[&self.arguments]);
                let queue = self.queue.clone();
                match worker.command(frame, None, || queue.has_left()) {
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
        if self.queue.has_left() {
            return None;
        }
        let pause = self.restarts.ended_after(Duration::ZERO);
        self.queue.worker_ended(Instant::now() + pause);
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
        let session = &*worker.session;
        let reader = SessionReader { session, queue: &self.queue };
        // The result of the last command may have come together with something else.
        let mut wakeup = Wakeup { socket: true, ..Wakeup::default() };
        let mut waits_for_client = false;
        loop {
            if self.queue.has_left() && session.outbox().calls.is_empty() {
                return WorkerEnd::Unwanted;
            }
            if waits_for_client && wakeup.socket {
                // The socket is not read, and so it tells only its end.
                return WorkerEnd::Ended;
            }
            if wakeup.alarm {
                reader.proceed(&mut session.inbox.lock());
            }
            if wakeup.socket || (waits_for_client && wakeup.alarm) {
                match reader.read_all(&mut session.inbox.lock()) {
                    Ok(ReadState::Open) => waits_for_client = false,
                    Ok(ReadState::WaitsForClient) => waits_for_client = true,
                    Ok(ReadState::Closed) => return WorkerEnd::Ended,
                    Err(damage) => return WorkerEnd::Unhealthy(damage.to_string()),
                }
                session.watch.watch_reads(session.socket(), !waits_for_client);
            }
            if wakeup.process && !wakeup.socket {
                return WorkerEnd::Ended;
            }
            // The time of a client is no time of the execution.
            let busy = if waits_for_client { None } else { self.queue.busy_time() };
            if let Err(reason) = health.look(&worker.process, &self.model.parameters, busy) {
                return WorkerEnd::Unhealthy(reason);
            }
            wakeup = session.wait(Some(health.next_look(busy)));
        }
    }
}
