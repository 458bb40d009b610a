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

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
        sendmsg, socketpair,
    },
};
use vocabulary::{Error, FailureReason};

use crate::{
    answering::questions,
    health::StopWatch,
    instance_queue::unhealthy,
    model_context::ModelContext,
    process::{WorkerProcess, exit_text},
    process_memory::CountedProcess,
    python_modules::{BOOTSTRAP, MODULES},
    sandbox::{OPEN_GATE, gate_failure},
    session::{
        area::SharedArea,
        inbox::Inbox,
        readiness::ReadinessSocket,
        watch::WorkerWatch,
        worker_session::{SessionParts, WorkerSession},
    },
    wakeup_fd::WakeupFd,
    wire::{
        frames::{FrameWriter, ReadOutcome, WorkerFrameKind},
        marshal::{DamagedMessage, MarshalValue},
        messages::WorkerItem,
    },
    worker_output::Printer,
};

/// See the module documentation.
pub(crate) struct Worker {
    pub(crate) process: WorkerProcess,
    pub(crate) session: Arc<WorkerSession>,
    pub(crate) started: Instant,
    /// The process counts in the memory of the model.
    _counted: CountedProcess,
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
    /// A signal has stopped the worker.
    Stopped,
}

impl Worker {
    /// Starts a process and waits until it has read the modules.
    ///
    /// # Errors
    /// The process cannot be started, or has not answered in time.
    pub(crate) fn launch(
        model: &Arc<ModelContext>,
        instance: &str,
        alarm: &Arc<WakeupFd>,
    ) -> Result<Self, Error> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Error::internal(format!("failed to {what} for '{instance}': {error}"))
                .because(FailureReason::Backend)
        };
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| failed("make a socket", &errno))?;
        let (readiness, theirs_for_readiness) =
            ReadinessSocket::pair().map_err(|errno| failed("make a socket", &errno))?;
        let limit = model.settings.area_limit;
        let area = |name| SharedArea::new(name, limit).map_err(|errno| failed("make shared memory", &errno));
        let (inputs, outputs) = (area("nereid-inputs")?, area("nereid-outputs")?);
        let command = model.command(instance, BOOTSTRAP);
        let program = program_of(&command);
        let process = match &model.sandbox {
            None => WorkerProcess::start(&model.parts.spawner, command, theirs),
            Some(sandbox) => WorkerProcess::start_in_sandbox(sandbox, &command, theirs),
        };
        let cannot_start = format!("start the Python interpreter '{program}'");
        let mut process = process.map_err(|error| failed(&cannot_start, &error))?;
        let printer =
            Printer { model: model.name.clone(), version: model.version, instance: instance.to_owned() };
        process.read_output(printer).map_err(|error| failed("read what the process prints", &error))?;
        if model.sandbox.is_some() {
            unless_ended(send(&ours, OPEN_GATE, SendFlags::NOSIGNAL).map(drop))
                .map_err(|errno| failed("reach the process", &errno))?;
        }
        let descriptors = [inputs.file(), outputs.file(), theirs_for_readiness.as_fd()];
        unless_ended(send_descriptors(&ours, &descriptors))
            .map_err(|errno| failed("reach the process", &errno))?;
        let watch = WorkerWatch::new(ours.as_fd(), process.descriptor(), alarm.descriptor());
        let session = WorkerSession::new(SessionParts {
            model: model.clone(),
            socket: ours,
            inputs,
            outputs,
            alarm: alarm.clone(),
            readiness,
            watch: watch.map_err(|errno| failed("watch the process", &errno))?,
        });
        let _counted = model.process_memory.count(process.id());
        let mut worker = Self { process, session: Arc::new(session), started: Instant::now(), _counted };
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
                let seconds = model.settings.process_timeout.as_secs();
                let how = match (status, failure) {
                    (Some(status), _) => exit_text(Some(status)),
                    (None, CommandFailure::Stopped) => "a signal has stopped it".to_owned(),
                    (None, _) => format!("it has not answered within {seconds} s (stub-timeout-seconds)"),
                };
                log::error!("the Python interpreter '{program}' of '{instance}' did not start: {how}");
                Err(unhealthy(instance))
            }
        }
    }

    /// Sends a command and waits for its result. Meanwhile the worker's questions are answered. A worker that a signal has
    /// stopped is not waited for.
    pub(crate) fn command(
        &mut self,
        frame: FrameWriter,
        limit: Option<Duration>,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<String, CommandFailure> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        self.session.send(frame);
        let mut has_ended = false;
        let mut stop_watch = StopWatch::default();
        loop {
            if let Some(result) = self.result(&mut self.session.inbox.lock())? {
                return result.map_err(CommandFailure::Refused);
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
            if stop_watch.look(&self.process) {
                return Err(CommandFailure::Stopped);
            }
            let wakeup =
                self.session.wait(Some(left.unwrap_or(StopWatch::INTERVAL).min(StopWatch::INTERVAL)));
            let mut inbox = self.session.inbox.lock();
            questions::answer_finished(&self.session, &inbox.open.services);
            has_ended = if wakeup.socket {
                inbox.read(self.session.socket()) == ReadOutcome::Closed
            } else {
                wakeup.process
            };
        }
    }

    /// Answers the worker's questions up to the result of a command, if it has come.
    ///
    /// # Errors
    /// A message is damaged.
    fn result(&self, inbox: &mut Inbox) -> Result<Option<Result<String, String>>, CommandFailure> {
        let session = &*self.session;
        let damaged = |damage: DamagedMessage| {
            let name = &session.model.name;
            log::error!("a worker of model '{name}' has sent a message that cannot be read: {damage}");
            CommandFailure::Ended
        };
        while let Some((frame, open)) = inbox.next_frame().map_err(|_| CommandFailure::Ended)? {
            let value = MarshalValue::read(frame).map_err(damaged)?;
            for item in value.as_list().map_err(damaged)? {
                match WorkerItem::of(item).map_err(damaged)? {
                    WorkerItem::Result(result) => {
                        return Ok(Some(result.map(str::to_owned).map_err(str::to_owned)));
                    }
                    item => questions::serve(session, &mut open.services, item).map_err(damaged)?,
                }
            }
        }
        Ok(None)
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
            Err(CommandFailure::Stopped) => {
                log::error!(
                    "a signal has stopped the process of instance '{instance}', which ends: it is ended"
                );
            }
        }
        self.session.close();
        self.process.has_ended_within(deadline.saturating_duration_since(Instant::now()).min(LAST_MOMENT));
        self.process.end();
    }
}

/// A process that has finalized its model may take so long to end.
const LAST_MOMENT: Duration = Duration::from_secs(2);

fn program_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Lets a process pass that has ended before it was sent something: how it ended says more, and is looked at later.
fn unless_ended(sent: Result<(), Errno>) -> Result<(), Errno> {
    sent.or_else(|errno| if matches!(errno, Errno::PIPE | Errno::CONNRESET) { Ok(()) } else { Err(errno) })
}

/// Sends the descriptors of both areas and of the socket for readiness.
fn send_descriptors(socket: &OwnedFd, descriptors: &[BorrowedFd<'_>; 3]) -> Result<(), Errno> {
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
    let further = model.code.modules();
    header.tuple(MODULES.len() + further.len());
    for (name, source) in MODULES.iter().chain(further) {
        header.tuple(2);
        header.str(name);
        header.str(source);
    }
    header.tuple(12);
    header.str(&model.name);
    header.int(model.version);
    header.str(instance);
    header.str(&model.version_directory.to_string_lossy());
    header.str(&model.model_directory.to_string_lossy());
    header.optional_str(model.code.backend_directory().map(|path| path.to_string_lossy()).as_deref());
    header.str(&model.code.file().to_string_lossy());
    header.int(std::process::id());
    header.size(model.settings.thread_pool_size);
    match model.parameters.memory_limit {
        Some(limit) => header.int(limit),
        None => header.none(),
    }
    header.size(model.settings.area_limit);
    header.int(u8::from(model.settings.relative_error_paths));
    frame
}
