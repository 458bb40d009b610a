//! The conversation with one worker, as the threads of the server share it.
//!
//! What goes to the worker passes the [`Outbox`], whose lock is a leaf: no code of others runs under it. What the worker
//! sends is read from the [`Inbox`]. The thread that reads holds the inbox also while it answers, so that the answers have
//! the order of what was sent. It is that of the supervisor, or one that has just sent a brief execution.
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use inference::lock::{LockRank, Mutex, MutexGuard};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};
use vocabulary::{Error, Tensor};

use crate::{
    model_context::ModelContext,
    session::{
        area::SharedArea,
        inbox::Inbox,
        outbox::Outbox,
        readiness::ReadinessSocket,
        watch::{Wakeup, WorkerWatch},
    },
    wakeup_fd::WakeupFd,
    wire::frames::FrameWriter,
};

/// See the module documentation.
pub(crate) struct WorkerSession {
    pub(crate) model: Arc<ModelContext>,
    socket: OwnedFd,
    /// The area that the server writes. The outbox says what lies where.
    pub(crate) inputs: Arc<SharedArea>,
    /// The area that the worker writes.
    pub(crate) outputs: SharedArea,
    alarm: Arc<WakeupFd>,
    /// Asks the model whether it is ready.
    pub(crate) readiness: ReadinessSocket,
    /// Wakes the thread of the supervisor.
    pub(crate) watch: WorkerWatch,
    outbox: Mutex<Outbox>,
    /// Held by the thread that reads what the worker sends, also while it answers: that is the exception from the rule
    /// that no lock is held across a call. A thread that may hold it already only tries to lock it.
    pub(crate) inbox: Mutex<Inbox>,
}

/// What a session is made of.
pub(crate) struct SessionParts {
    pub(crate) model: Arc<ModelContext>,
    pub(crate) socket: OwnedFd,
    pub(crate) inputs: SharedArea,
    pub(crate) outputs: SharedArea,
    pub(crate) alarm: Arc<WakeupFd>,
    pub(crate) readiness: ReadinessSocket,
    pub(crate) watch: WorkerWatch,
}

impl fmt::Debug for WorkerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSession").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl WorkerSession {
    pub(crate) fn new(parts: SessionParts) -> Self {
        let SessionParts { model, socket, inputs, outputs, alarm, readiness, watch } = parts;
        let inputs = Arc::new(inputs);
        let inbox = Inbox::new(&model, &alarm);
        Self {
            model,
            socket,
            outbox: Mutex::new(Outbox::new(inputs.clone())),
            inputs,
            outputs,
            alarm,
            readiness,
            watch,
            inbox: Mutex::ranked(LockRank::WorkerInbox, inbox),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn alarm(&self) -> &Arc<WakeupFd> {
        &self.alarm
    }

    /// What goes to the worker, and what the worker has. A leaf.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock()
    }

    /// Sends a frame. A frame that cannot be sent ends the worker: its thread sees the end.
    pub(crate) fn send(&self, frame: FrameWriter) {
        let frame = frame.finish();
        match self.outbox().frames.push(&self.socket, frame) {
            Ok(false) => {}
            Ok(true) => self.alarm.ring(),
            Err(_) => self.close(),
        }
    }

    /// Sends what waits for the socket.
    fn flush(&self) {
        if self.outbox().frames.flush(&self.socket).is_err() {
            self.close();
        }
    }

    /// Waits for news of the worker, and sends what the socket did not take before. Only the thread that serves the worker
    /// calls this.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Wakeup {
        let has_waiting_frames = self.outbox().frames.is_waiting();
        self.watch.watch_writes(self.socket(), has_waiting_frames);
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
        let frame = self.outbox().give_back(numbers, at_once);
        if let Some(frame) = frame {
            self.send(frame);
        }
    }

    /// Copies a tensor into the area that the server writes, and returns where it lies.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the area has no room; the error of the tensor's memory.
    pub(crate) fn put(&self, tensor: &Tensor) -> Result<usize, Error> {
        let offset = self.outbox().inputs.reserve(tensor)?;
        // The range is this tensor's, so the other threads need not wait for the copy.
        let written = self.inputs.write_tensor(offset, tensor);
        written.inspect_err(|_| self.outbox().inputs.give_back(offset))?;
        Ok(offset)
    }
}
