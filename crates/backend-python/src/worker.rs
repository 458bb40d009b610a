//! A worker: its process, and the conversation with it. One thread at a time serves a worker.
//!
//! A worker starts with a command of Python that reads the modules of `python/` from its socket. So the server needs no
//! file of its own, and the interpreter needs no package.
use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use inference::{Error, FailureReason};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
        sendmsg, socketpair,
    },
};

use crate::{
    area::{InputArea, SharedArea},
    channel::{Alarm, WorkerChannel, WorkerFrameKind},
    frames::{FrameBuffer, FrameWriter, ReadOutcome},
    marshal::MarshalValue,
    messages::WorkerItem,
    model_context::ModelContext,
    model_services::ModelServices,
    process::{WorkerProcess, exit_text},
    python_modules::{BOOTSTRAP, MODULES},
    readiness::ReadinessSocket,
    sandbox::{OPEN_GATE, gate_failure},
    services::log_line,
};

/// See the module documentation.
pub(crate) struct Worker {
    pub(crate) process: WorkerProcess,
    pub(crate) channel: Arc<WorkerChannel>,
    /// The area that the worker writes.
    pub(crate) outputs: SharedArea,
    pub(crate) reader: FrameBuffer,
    pub(crate) services: ModelServices,
    pub(crate) started: Instant,
}

/// Why a command has no result.
#[derive(Debug, PartialEq)]
pub(crate) enum CommandFailure {
    /// The model or the worker has refused it, in these words.
    Refused(String),
    /// The worker has ended.
    Ended,
    /// The worker has not answered in time.
    Late,
    /// The caller wants the worker to end.
    Unwanted,
}

/// What woke the thread that serves a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wakeup {
    pub(crate) socket: bool,
    pub(crate) process: bool,
    pub(crate) alarm: bool,
}

impl Worker {
    /// Starts a process and waits until it has read the modules.
    ///
    /// # Errors
    /// The process cannot be started, or has not answered in time.
    pub(crate) fn launch(
        model: &Arc<ModelContext>,
        instance: &str,
        alarm: &Arc<Alarm>,
    ) -> Result<Self, Error> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Error::internal(format!("failed to {what} for '{instance}': {error}"))
                .because(FailureReason::Backend)
        };
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| failed("make a socket", &errno))?;
        let (readiness, theirs_for_readiness) =
            ReadinessSocket::pair().map_err(|errno| failed("make a socket", &errno))?;
        let area = |name| SharedArea::new(name).map_err(|errno| failed("make shared memory", &errno));
        let (input, outputs) = (area("nereid-inputs")?, area("nereid-outputs")?);
        let command = model.command(instance, BOOTSTRAP);
        let program = program_of(&command);
        let process = match &model.sandbox {
            None => WorkerProcess::start(&model.parts.spawner, command, theirs),
            Some(sandbox) => WorkerProcess::start_in_sandbox(sandbox, &command, theirs),
        };
        let cannot_start = format!("start the Python interpreter '{program}'");
        let process = process.map_err(|error| failed(&cannot_start, &error))?;
        if model.sandbox.is_some() {
            send(&ours, OPEN_GATE, SendFlags::NOSIGNAL)
                .map_err(|errno| failed("reach the process", &errno))?;
        }
        let descriptors = [input.file(), outputs.file(), theirs_for_readiness.as_fd()];
        send_descriptors(&ours, &descriptors).map_err(|errno| failed("reach the process", &errno))?;
        let input = InputArea::new(input, model.settings.area_limit);
        let mut worker = Self {
            process,
            channel: Arc::new(WorkerChannel::new(ours, readiness, input, alarm.clone())),
            outputs,
            reader: FrameBuffer::default(),
            services: ModelServices::new(model.clone()),
            started: Instant::now(),
        };
        let greeting =
            worker.command(start_frame(model, instance), Some(model.settings.process_timeout), || false);
        match greeting {
            Ok(_) => Ok(worker),
            Err(CommandFailure::Refused(text)) => Err(Error::internal(text).because(FailureReason::Backend)),
            Err(failure) => {
                let status = worker.process.has_ended_within(Duration::from_millis(100));
                let status = if status { worker.process.end() } else { None };
                if let Some(reason) = gate_failure(status).filter(|_| model.sandbox.is_some()) {
                    return Err(failed(&cannot_start, &reason));
                }
                let how = status.map_or_else(|| format!("{failure:?}"), |status| exit_text(Some(status)));
                log::error!("the Python interpreter '{program}' of '{instance}' did not start: {how}");
                Err(crate::link::unhealthy(instance))
            }
        }
    }

    /// Sends a command and waits for its result. Meanwhile the worker's questions are answered.
    pub(crate) fn command(
        &mut self,
        frame: FrameWriter,
        limit: Option<Duration>,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<String, CommandFailure> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        self.channel.send(frame);
        let mut has_ended = false;
        loop {
            while let Some(frame) = self.reader.next_frame().map_err(|()| CommandFailure::Ended)? {
                if let Some(result) = self.items_until_result(&frame)? {
                    return result.map_err(CommandFailure::Refused);
                }
            }
            if has_ended {
                return Err(CommandFailure::Ended);
            }
            if is_unwanted() {
                return Err(CommandFailure::Unwanted);
            }
            let now = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(CommandFailure::Late);
            }
            let wakeup = self.wait(left, true);
            self.services.answer_finished(&self.channel);
            has_ended = if wakeup.socket {
                self.reader.read(self.channel.socket()) == ReadOutcome::Closed
            } else {
                wakeup.process
            };
        }
    }

    /// Answers the items of a frame, up to the result of a command.
    fn items_until_result(&mut self, frame: &[u8]) -> Result<Option<Result<String, String>>, CommandFailure> {
        let model = self.services.model().name.clone();
        let damaged = |damage: crate::marshal::DamagedMessage| {
            log::error!("a worker of model '{model}' has sent a message that cannot be read: {damage}");
            CommandFailure::Ended
        };
        let value = MarshalValue::read(frame).map_err(damaged)?;
        for item in value.as_list().map_err(damaged)? {
            match WorkerItem::of(item).map_err(damaged)? {
                WorkerItem::Result(result) => {
                    return Ok(Some(result.map(str::to_owned).map_err(str::to_owned)));
                }
                WorkerItem::Log { level, file, line, text } => log_line(level, file, line, text),
                WorkerItem::Ask { reply, name, arguments } => {
                    self.services.ask(&self.channel, reply, name, arguments).map_err(damaged)?;
                }
                WorkerItem::Tell { name, arguments } => {
                    self.services.tell(name, arguments).map_err(damaged)?;
                }
                WorkerItem::Freed(offsets) => {
                    let mut input = self.channel.input.lock();
                    offsets.into_iter().for_each(|offset| input.give_back(offset));
                }
                WorkerItem::WantsSpace => self.channel.give_back(&[], true),
                // Nothing else concerns a model that does not execute.
                WorkerItem::Done { .. }
                | WorkerItem::Send { .. }
                | WorkerItem::Abandoned { .. }
                | WorkerItem::Infer { .. }
                | WorkerItem::CancelInfer { .. }
                | WorkerItem::Taken { .. } => {}
            }
        }
        Ok(None)
    }

    /// Waits for news, and sends what the socket did not take before.
    pub(crate) fn wait(&self, limit: Option<Duration>, reads: bool) -> Wakeup {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, reads);
        events.set(PollFlags::OUT, self.channel.has_waiting_frames());
        let mut polled = [
            PollFd::from_borrowed_fd(self.channel.socket(), events),
            PollFd::from_borrowed_fd(self.process.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.channel.alarm().descriptor(), PollFlags::IN),
        ];
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
        // An interrupted wait has no news.
        if poll(&mut polled, limit.as_ref()).is_err() {
            return Wakeup::default();
        }
        let [socket, process, alarm] = polled.map(|polled| polled.revents());
        if socket.contains(PollFlags::OUT) {
            self.channel.flush();
        }
        let wakeup = Wakeup {
            socket: socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            process: !process.is_empty(),
            alarm: !alarm.is_empty(),
        };
        if wakeup.alarm {
            self.channel.alarm().silence();
        }
        wakeup
    }

    /// Lets the model finalize itself, and waits for the end of the process. A process that does not end in time is
    /// ended.
    pub(crate) fn finalize(mut self, instance: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        let result = self.command(command_frame(WorkerFrameKind::Finalize, &[]), Some(limit), || false);
        match result {
            Ok(_) | Err(CommandFailure::Ended | CommandFailure::Unwanted) => {}
            Err(CommandFailure::Refused(text)) => {
                log::error!("the model of instance '{instance}' failed to finalize: {text}");
            }
            Err(CommandFailure::Late) => log::error!(
                "the model of instance '{instance}' did not finalize within {} s, its process is ended",
                limit.as_secs()
            ),
        }
        self.channel.close();
        self.process.has_ended_within(deadline.saturating_duration_since(Instant::now()).min(LAST_MOMENT));
        self.process.end();
    }
}

/// A process that has finalized its model may take so long to end.
const LAST_MOMENT: Duration = Duration::from_secs(2);

fn program_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Sends the descriptors of both areas and of the socket for readiness.
fn send_descriptors(socket: &OwnedFd, descriptors: &[BorrowedFd<'_>; 3]) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(b"n")], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// A frame with a kind and texts.
pub(crate) fn command_frame(kind: WorkerFrameKind, texts: &[&str]) -> FrameWriter {
    let mut frame = FrameWriter::default();
    frame.header.tuple(1 + texts.len());
    frame.header.int(kind as u8);
    texts.iter().for_each(|text| frame.header.str(text));
    frame
}

/// The first frame: the modules, and what the worker must know before it imports the model.
fn start_frame(model: &ModelContext, instance: &str) -> FrameWriter {
    let mut frame = FrameWriter::default();
    let header = &mut frame.header;
    header.tuple(3);
    header.int(WorkerFrameKind::Start as u8);
    header.tuple(MODULES.len());
    for (name, source) in MODULES {
        header.tuple(2);
        header.str(name);
        header.str(source);
    }
    header.tuple(11);
    header.str(&model.name);
    header.int(model.version);
    header.str(instance);
    header.str(&model.version_directory.to_string_lossy());
    header.str(&model.model_directory.to_string_lossy());
    header.optional_str(model.backend_directory.as_ref().map(|path| path.to_string_lossy()).as_deref());
    header.str(&model.file.to_string_lossy());
    header.int(std::process::id());
    header.size(model.settings.thread_pool_size);
    match model.parameters.memory_limit {
        Some(limit) => header.int(limit),
        None => header.none(),
    }
    header.size(model.settings.area_limit);
    frame
}
