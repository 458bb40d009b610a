//! Wakes a thread that works for a worker: the one that serves it, or the one that reads what it prints.
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    task::Wake,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, read, write},
};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct WakeupFd(OwnedFd);

impl WakeupFd {
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

impl Wake for WakeupFd {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
