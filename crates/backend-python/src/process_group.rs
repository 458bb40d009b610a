//! Process groups whose processes end together.
//!
//! A group that is made by a process of its own can be joined by one that may make none. A process can leave its group,
//! unless its sandbox forbids that. So a mark, which a process cannot lose by accident, finds those that have left.
use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{process_mark::ProcessMark, worker_output::OutputPipes};

/// A process that was started in a group of its own and has not been waited for. Dropping it ends it, and all that it has
/// started.
#[derive(Debug)]
pub(crate) struct GroupChild {
    child: Child,
    group: Pid,
    mark: Option<ProcessMark>,
    has_ended: bool,
}

/// A group that has only the process that has made it, which has ended or will.
#[derive(Debug)]
pub(crate) struct NewGroup(Child);

impl NewGroup {
    /// Makes a group.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn new() -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_clear().process_group(0).spawn().map(Self)
    }

    /// The number of the group. No other group gets it as long as the group has a process that was not waited for.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// A process that has joined the group when it started.
    pub(crate) fn joined_by(self, child: Child) -> GroupChild {
        GroupChild::new(child, self.id())
    }
}

impl Drop for NewGroup {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl GroupChild {
    /// Starts a process in a new group.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self::leader(command.process_group(0).spawn()?))
    }

    /// A process that leads its group.
    pub(crate) fn leader(child: Child) -> Self {
        let group = Pid::from_child(&child);
        Self::new(child, group)
    }

    fn new(child: Child, group: Pid) -> Self {
        let mark = ProcessMark::put(Pid::from_child(&child));
        Self { child, group, mark, has_ended: false }
    }

    /// What the process prints into, if these are pipes. Can be taken once.
    pub(crate) fn take_output(&mut self) -> Option<OutputPipes> {
        let (stdout, stderr) = self.child.stdout.take().zip(self.child.stderr.take())?;
        Some(OutputPipes { stdout: stdout.into(), stderr: stderr.into() })
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends the process and all that it has started, and waits for it. Returns how it ended, if it was not ended before.
    pub(crate) fn end(&mut self) -> Option<io::Result<ExitStatus>> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        // The process has not been waited for, so no other group can have the number.
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait();
        if let Some(mark) = self.mark.take() {
            mark.end_all();
        }
        Some(status)
    }
}

impl Drop for GroupChild {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    /// Starts a shell that starts a program in a session of its own, and returns the number of the program.
    fn with_other_session(script: &str) -> (GroupChild, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let write = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
        let mut command = Command::new("sh");
        // It begins when the shell has its mark.
        let script = format!("read -r line; {}", script.replace("PROGRAM", &format!("'{write}'")));
        command.args(["-c", &script]).stdin(Stdio::piped());
        let mut child = GroupChild::spawn(&mut command).unwrap();
        child.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        loop {
            if let Ok(text) = fs::read_to_string(&file) {
                return (child, text.trim().to_owned());
            }
            std::thread::yield_now();
        }
    }

    /// Whether a process runs. One that has ended may wait for the init process of the system.
    fn runs(process: &str) -> bool {
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
    }

    #[test]
    fn what_has_left_the_group_ends_with_the_process() {
        for script in [
            // The shell waits for what it has started.
            "setsid sh -c PROGRAM; wait",
            // It waits for its input.
            "setsid sh -c PROGRAM & read -r line",
            // The program has lost its parent, and its variables.
            "(env -i setsid -f /bin/sh -c PROGRAM); read -r line",
        ] {
            let (child, process) = with_other_session(script);
            assert!(runs(&process), "{script}");
            drop(child);
            assert!(!runs(&process), "{script}");
        }
    }

    #[test]
    fn what_a_dead_process_has_left_ends() {
        let (mut child, process) = with_other_session("setsid -f sh -c PROGRAM; read -r line");
        rustix::process::kill_process(child.pid(), Signal::KILL).unwrap();
        assert_eq!(child.end().unwrap().unwrap().to_string(), "signal: 9 (SIGKILL)");
        assert!(child.end().is_none() && !runs(&process));
    }

    #[test]
    fn a_group_can_be_joined_and_stays_as_long_as_a_process_of_it() {
        let group = NewGroup::new().unwrap();
        let id = group.id();
        let mut command = Command::new("sleep");
        let child = command.arg("1000").process_group(id.as_raw_nonzero().get()).spawn().unwrap();
        let mut child = group.joined_by(child);
        let of_child = rustix::process::getpgid(Some(child.pid())).unwrap();
        assert_eq!(of_child, id);
        assert_eq!(child.end().unwrap().unwrap().to_string(), "signal: 9 (SIGKILL)");
    }
}
