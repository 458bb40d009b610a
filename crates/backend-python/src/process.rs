//! The process of a worker: how it starts, what the system says of it, and how it ends.
//!
//! A worker has a process group of its own, which ends with it, and a mark for what leaves the group: nothing that a model
//! starts outlives the model. Its socket is its standard input. What it prints goes into pipes.
use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{PidfdFlags, pidfd_open},
};

use crate::{
    process_group::GroupChild,
    sandbox::{Sandbox, ScratchFolder},
    spawner::Spawner,
    worker_output::{Printer, WorkerOutput},
};

/// A process that was started and has not been waited for.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: GroupChild,
    /// Reads what the process prints. It stands behind the process, which so ends first, and nothing is lost.
    output: Option<WorkerOutput>,
    /// Readable when the process has ended.
    descriptor: OwnedFd,
    /// The files of a process in a sandbox.
    scratch: Option<ScratchFolder>,
}

/// What the system says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStatus {
    /// A signal has stopped the process.
    pub(crate) is_stopped: bool,
    /// The processor time of all its threads.
    pub(crate) processor_time: Duration,
}

impl WorkerProcess {
    /// Starts a process with a socket as its standard input, in a process group of its own.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn start(spawner: &Spawner, mut command: Command, socket: OwnedFd) -> std::io::Result<Self> {
        command.stdin(Stdio::from(socket)).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Self::watch(GroupChild::leader(spawner.spawn(command)?), None)
    }

    /// As [`Self::start`], in a sandbox. The gate of the process is closed.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn start_in_sandbox(
        sandbox: &Sandbox,
        command: &Command,
        socket: OwnedFd,
    ) -> std::io::Result<Self> {
        let scratch = sandbox.scratch()?;
        Self::watch(sandbox.spawn(command, socket, scratch.path())?, Some(scratch))
    }

    fn watch(child: GroupChild, scratch: Option<ScratchFolder>) -> std::io::Result<Self> {
        let descriptor = pidfd_open(child.pid(), PidfdFlags::empty())?;
        Ok(Self { child, output: None, descriptor, scratch })
    }

    /// Begins to read what the process prints. Lines that were printed before are not lost.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn read_output(&mut self, printer: Printer) -> std::io::Result<()> {
        self.output = self.child.take_output().map(|pipes| WorkerOutput::read(pipes, printer)).transpose()?;
        Ok(())
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Readable when the process has ended.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The status now; `None` if the process has ended, or the system does not tell.
    pub(crate) fn status(&self) -> Option<ProcessStatus> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        ProcessStatus::parse(&text)
    }

    /// Waits for the end of the process, but not longer than `limit`. Returns whether it has ended.
    pub(crate) fn has_ended_within(&self, limit: Duration) -> bool {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let limit = Timespec::try_from(limit).unwrap_or_default();
        poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Ends the process and all that it has started, and waits for it. Its last words are in the log when this returns.
    pub(crate) fn end(mut self) -> Option<ExitStatus> {
        let status = self.child.end().and_then(Result::ok);
        // Nothing of the process writes any more.
        self.scratch = None;
        self.output = None;
        status
    }
}

impl ProcessStatus {
    /// Reads the content of `/proc/<pid>/stat`.
    fn parse(text: &str) -> Option<Self> {
        // The name of the program may contain anything, and is in parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let mut times = fields.skip(10).map_while(|field| field.parse::<u64>().ok());
        let ticks = times.next()? + times.next()?;
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        let processor_time = Duration::from_millis(ticks * 1000 / ticks_per_second);
        Some(Self { is_stopped: state == "T", processor_time })
    }
}

/// The words for the end of a process.
pub(crate) fn exit_text(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "it has ended".to_owned(), |status| status.to_string())
}

#[cfg(test)]
mod tests {
    use rustix::{
        net::{AddressFamily, SocketFlags, SocketType, socketpair},
        process::{Signal, kill_process},
    };

    use super::*;

    fn started(program: &str, argument: &str) -> WorkerProcess {
        let (socket, _) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new(program);
        command.args(["-c", argument]);
        WorkerProcess::start(&Spawner::new(), command, socket).unwrap()
    }

    #[test]
    fn a_status_is_read_whatever_the_name_of_the_program() {
        let text = "7 (a) R (b) T 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0";
        let status = ProcessStatus::parse(text).unwrap();
        assert!(status.is_stopped);
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(status.processor_time, Duration::from_millis(200 * 1000 / ticks));
        assert_eq!(ProcessStatus::parse("7 (a) R 1"), None);
    }

    #[test]
    fn a_stopped_process_is_seen_and_ended() {
        let process = started("sh", "while :; do sleep 1; done");
        assert!(!process.status().unwrap().is_stopped);
        kill_process(process.child.pid(), Signal::STOP).unwrap();
        while !process.status().unwrap().is_stopped {
            std::thread::yield_now();
        }
        assert!(!process.has_ended_within(Duration::ZERO));
        assert_eq!(exit_text(process.end()), "signal: 9 (SIGKILL)");
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let process = started("sh", "exit 3");
        assert!(process.has_ended_within(Duration::from_secs(60)));
        assert_eq!(exit_text(process.end()), "exit status: 3");
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let process =
            started("sh", &format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display()));
        let child = loop {
            if let Ok(text) = fs::read_to_string(&file) {
                break text.trim().to_owned();
            }
            std::thread::yield_now();
        };
        process.end();
        // The init process of the system, or of the container, waits for the child at any time: until then it is a zombie.
        let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ")) {
            std::thread::yield_now();
        }
    }
}
