//! A mark on a process and all that it starts, so that they can be found again.
//!
//! A program may leave its process group, its session and its parent, and may clear its variables. It keeps its limits, and
//! inherits them to what it starts. Linux has a limit that no version since 2.6 applies, that of file locks: a random number
//! there is the mark. No right is needed to set it, in a container neither. A model without a sandbox could lower the
//! limit on purpose. One in a sandbox cannot leave its group.
use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher, Hasher},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, prlimit},
};

/// The number that all processes of one worker have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessMark(u64);

/// Marks are not small: so no other program has chosen the same number.
const LEAST: u64 = 1 << 40;

/// The longest time that the processes of a mark are ended. The kernel may keep one that waits for a device.
const MOST_TIME: Duration = Duration::from_secs(5);

/// The line of `/proc/<pid>/limits`.
const LIMIT_NAME: &str = "Max file locks";

impl ProcessMark {
    /// Marks a process. `None` if the system does not allow it, such as for a process of another user.
    pub(crate) fn put(process: Pid) -> Option<Self> {
        let most = getrlimit(Resource::Locks).maximum.unwrap_or(u64::MAX - 1);
        let number = LEAST + RandomState::new().build_hasher().finish() % most.checked_sub(LEAST)?.max(1);
        let limit = Rlimit { current: Some(number), maximum: Some(number) };
        match prlimit(Some(process), Resource::Locks, limit) {
            Ok(_) => Some(Self(number)),
            Err(errno) => {
                log::debug!("the process {} cannot be marked: {errno}", process.as_raw_nonzero());
                None
            }
        }
    }

    /// Ends all processes with the mark.
    pub(crate) fn end_all(self) {
        let deadline = Instant::now() + MOST_TIME;
        loop {
            let found = self.processes();
            if found.is_empty() {
                return;
            }
            // What they start meanwhile is found the next time.
            let are_ended =
                found.iter().filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok()).count();
            if are_ended == 0 || !found.iter().all(|process| ends_before(process, deadline)) {
                log::warn!("{} processes that a Python model has started cannot be ended", found.len());
                return;
            }
        }
    }

    /// The processes with the mark that have not ended.
    fn processes(self) -> Vec<OwnedFd> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter_map(Pid::from_raw).filter_map(|process| self.process(process)).collect()
    }

    fn process(self, process: Pid) -> Option<OwnedFd> {
        // Opened first: the number may mean another process later.
        let descriptor = pidfd_open(process, PidfdFlags::empty()).ok()?;
        let limits = fs::read_to_string(format!("/proc/{}/limits", process.as_raw_nonzero())).ok()?;
        let is_marked = marked_by(&limits) == Some(self) && !ends_before(&descriptor, Instant::now());
        is_marked.then_some(descriptor)
    }
}

/// The mark in the content of `/proc/<pid>/limits`.
fn marked_by(limits: &str) -> Option<ProcessMark> {
    let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT_NAME))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok().map(ProcessMark)
}

/// Whether a process ends before the deadline. Waits for it.
pub(crate) fn ends_before(process: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::try_from(left).unwrap_or_default())) {
            Ok(0) => return false,
            Ok(_) => return true,
            // An interrupted wait goes on.
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_and_everything_else_is_none() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max pending signals       7                    8                    signals   \n\
                      Max file locks            1099511627999        1099511628000        locks     \n";
        assert_eq!(marked_by(limits), Some(ProcessMark(1_099_511_628_000)));
        assert_eq!(marked_by(&limits.replace("1099511628000", "unlimited    ")), None);
        assert_eq!(marked_by("Max pending signals       7                    8\n"), None);
    }

    #[test]
    fn marks_differ() {
        let own = rustix::process::getpid();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let one = ProcessMark::put(Pid::from_child(&child)).unwrap();
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let two = ProcessMark::put(Pid::from_child(&other)).unwrap();
        assert!(one != two && one.process(own).is_none());
        one.end_all();
        assert_eq!(child.wait().unwrap().to_string(), "signal: 9 (SIGKILL)");
        assert_eq!(two.processes().len(), 1);
        two.end_all();
        other.wait().unwrap();
    }
}
