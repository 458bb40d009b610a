//! Which of a worker's descriptors wake the thread of its supervisor.
//!
//! A thread that reads the answer to its own execution pauses the watch of the socket meanwhile. The wait of another thread
//! sees such a change at once, and what has come during a pause wakes it after the pause.
use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use inference::lock::Mutex;
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};

/// The watched descriptors of one worker.
#[derive(Debug)]
pub(crate) struct WorkerWatch {
    epoll: OwnedFd,
    /// What is watched of the socket.
    socket: Mutex<SocketInterest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketInterest {
    reads: bool,
    writes: bool,
}

/// What woke the thread that serves a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wakeup {
    /// The socket has bytes, or its end.
    pub(crate) socket: bool,
    /// The socket takes bytes again.
    pub(crate) writable: bool,
    pub(crate) process: bool,
    pub(crate) alarm: bool,
}

const SOCKET: u64 = 0;
const PROCESS: u64 = 1;
const ALARM: u64 = 2;

impl WorkerWatch {
    /// Watches a socket, a process and an alarm.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        process: BorrowedFd<'_>,
        alarm: BorrowedFd<'_>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, descriptor) in [(SOCKET, socket), (PROCESS, process), (ALARM, alarm)] {
            epoll::add(&epoll, descriptor, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, socket: Mutex::new(SocketInterest { reads: true, writes: false }) })
    }

    /// Waits until something has happened, but not longer than `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Wakeup {
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 3];
        // An interrupted wait has no news.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, limit.as_ref()) else {
            return Wakeup::default();
        };
        let mut wakeup = Wakeup::default();
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            match number {
                SOCKET => {
                    wakeup.writable = flags.contains(epoll::EventFlags::OUT);
                    wakeup.socket = flags
                        .intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                }
                PROCESS => wakeup.process = true,
                _ => wakeup.alarm = true,
            }
        }
        wakeup
    }

    /// Watches whether the socket has bytes, or stops to.
    pub(crate) fn watch_reads(&self, socket: BorrowedFd<'_>, reads: bool) {
        self.change(socket, |interest| SocketInterest { reads, ..interest });
    }

    /// Watches whether the socket takes bytes, or stops to.
    pub(crate) fn watch_writes(&self, socket: BorrowedFd<'_>, writes: bool) {
        self.change(socket, |interest| SocketInterest { writes, ..interest });
    }

    fn change(&self, socket: BorrowedFd<'_>, change: impl FnOnce(SocketInterest) -> SocketInterest) {
        let mut interest = self.socket.lock();
        let changed = change(*interest);
        if changed == *interest {
            return;
        }
        *interest = changed;
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, changed.reads);
        flags.set(epoll::EventFlags::OUT, changed.writes);
        // Fails for no descriptor that was added. The lock is held across this call, which does not wait, so that the
        // system has the latest of two changes.
        let _ = epoll::modify(self.epoll.as_fd(), socket, epoll::EventData::new_u64(SOCKET), flags);
    }
}

#[cfg(test)]
mod tests {
    use rustix::{
        event::{EventfdFlags, eventfd},
        net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair},
    };

    use super::*;

    #[test]
    fn a_paused_socket_wakes_nobody_and_wakes_after_the_pause() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let [process, alarm] = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let watch = WorkerWatch::new(ours.as_fd(), process.as_fd(), alarm.as_fd()).unwrap();
        assert_eq!(watch.wait(Some(Duration::ZERO)), Wakeup::default());
        watch.watch_reads(ours.as_fd(), false);
        send(&theirs, b"x", SendFlags::empty()).unwrap();
        assert_eq!(watch.wait(Some(Duration::ZERO)), Wakeup::default());
        watch.watch_reads(ours.as_fd(), true);
        assert_eq!(watch.wait(None), Wakeup { socket: true, ..Wakeup::default() });
        watch.watch_writes(ours.as_fd(), true);
        rustix::io::write(&alarm, &1_u64.to_ne_bytes()).unwrap();
        let all = Wakeup { socket: true, writable: true, process: false, alarm: true };
        assert_eq!(watch.wait(None), all);
        drop(theirs);
        watch.watch_reads(ours.as_fd(), false);
        assert!(watch.wait(None).socket, "the end of a worker is seen during a pause");
    }
}
