//! What the threads of the server share of one worker: its socket, its areas, and the executions that it has.
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    task::Wake,
    time::{Duration, Instant},
};

use inference::lock::{LockRank, Mutex};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, read, write},
    net::{Shutdown, shutdown},
};

use crate::{
    area::InputArea,
    calls::CallTable,
    dialog::Dialog,
    frames::{FrameWriter, OutgoingFrames},
    readiness::ReadinessSocket,
    watch::{Wakeup, WorkerWatch},
};

/// Wakes the thread that serves a worker.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// An alarm that is silent.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Wakes the thread. Any thread may call this.
    pub(crate) fn ring(&self) {
        // Fails only if it has rung very often, and then it rings.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// The thread is awake.
    pub(crate) fn silence(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }

    /// Waits until the alarm rings, but not longer than `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        // An interrupted wait ends early.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
        self.silence();
    }

    /// Readable while the alarm rings.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// See the module documentation.
pub(crate) struct WorkerChannel {
    socket: OwnedFd,
    outgoing: Mutex<OutgoingFrames>,
    pub(crate) input: Mutex<InputArea>,
    pub(crate) calls: Mutex<CallTable>,
    /// Outputs that the server has read and the worker still keeps.
    returned: Mutex<Vec<u64>>,
    alarm: Arc<Alarm>,
    /// Asks the model whether it is ready.
    pub(crate) readiness: ReadinessSocket,
    /// Wakes the thread of the supervisor.
    pub(crate) watch: WorkerWatch,
    /// Held by the thread that reads what the worker sends, also while it answers: that is the exception from the rule
    /// that no lock is held across a call. A thread that may hold it already only tries to lock it.
    pub(crate) dialog: Mutex<Dialog>,
}

/// What a channel is made of.
pub(crate) struct ChannelParts {
    pub(crate) socket: OwnedFd,
    pub(crate) readiness: ReadinessSocket,
    pub(crate) input: InputArea,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) watch: WorkerWatch,
    pub(crate) dialog: Dialog,
}

/// The kinds of frames to a worker; `python/nereid_worker.py` has the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WorkerFrameKind {
    /// What the worker is, and the model that it is for.
    Start = 1,
    /// A configuration to complete.
    Complete = 2,
    /// The model must initialize itself.
    Initialize = 3,
    /// Executions.
    Execute = 4,
    /// The answer to a question.
    Reply = 5,
    /// A response to a request of the model.
    Inferred = 6,
    /// Outputs that the server has read.
    Returned = 7,
    /// The model must finalize itself, and the worker ends.
    Finalize = 8,
}

/// So many outputs that the server has read wait for the next execution. More are told at once.
const MOST_RETURNED: usize = 64;

impl fmt::Debug for WorkerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerChannel").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl WorkerChannel {
    pub(crate) fn new(parts: ChannelParts) -> Self {
        let ChannelParts { socket, readiness, input, alarm, watch, dialog } = parts;
        Self {
            socket,
            readiness,
            outgoing: Mutex::default(),
            input: Mutex::new(input),
            calls: Mutex::default(),
            returned: Mutex::default(),
            alarm,
            watch,
            dialog: Mutex::ranked(LockRank::WorkerDialog, dialog),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Sends a frame. A frame that cannot be sent ends the worker: its thread sees the end.
    pub(crate) fn send(&self, frame: FrameWriter) {
        match self.outgoing.lock().push(&self.socket, frame.finish()) {
            Ok(false) => {}
            Ok(true) => self.alarm.ring(),
            Err(_) => self.close(),
        }
    }

    /// Sends what waits for the socket.
    fn flush(&self) {
        if self.outgoing.lock().flush(&self.socket).is_err() {
            self.close();
        }
    }

    /// Whether frames wait for the socket.
    fn has_waiting_frames(&self) -> bool {
        self.outgoing.lock().is_waiting()
    }

    /// Waits for news of the worker, and sends what the socket did not take before. Only the thread that serves the worker
    /// calls this.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Wakeup {
        self.watch.watch_writes(self.socket(), self.has_waiting_frames());
        let wakeup = self.watch.wait(limit);
        if wakeup.writable {
            self.flush();
        }
        if wakeup.alarm {
            self.alarm.silence();
        }
        wakeup
    }

    /// Waits until the worker has sent something, but not longer than until `deadline`. Returns whether it has.
    pub(crate) fn wait_readable(&self, deadline: Instant) -> bool {
        let limit = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(limit).unwrap_or_default();
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        // An interrupted wait ends early.
        poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Ends the conversation. Both sides see it.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// The worker need not keep these outputs any more. It learns so with the next execution, or at once if there are
    /// many.
    pub(crate) fn give_back(&self, numbers: &[u64], at_once: bool) {
        let mut returned = self.returned.lock();
        returned.extend_from_slice(numbers);
        if !(at_once || returned.len() >= MOST_RETURNED) {
            return;
        }
        let all = std::mem::take(&mut *returned);
        drop(returned);
        let mut frame = FrameWriter::default();
        frame.header.tuple(2);
        frame.header.int(WorkerFrameKind::Returned as u8);
        write_numbers(&mut frame, &all);
        self.send(frame);
    }

    /// Writes the outputs that the server has read since the last time.
    pub(crate) fn write_returned(&self, frame: &mut FrameWriter) {
        let all = std::mem::take(&mut *self.returned.lock());
        write_numbers(frame, &all);
    }
}

fn write_numbers(frame: &mut FrameWriter, numbers: &[u64]) {
    frame.header.tuple(numbers.len());
    numbers.iter().for_each(|number| frame.header.int(*number));
}
