//! How a process starts in a sandbox.
//!
//! The thread that has entered the sandbox shares the server's memory, and processes of one sandbox may signal and trace
//! each other. So the thread must have ended before code of the model runs. The process begins as a shell, the gate, that
//! sets limits and waits for a line. The server opens the gate when the thread is gone, and the shell becomes the
//! interpreter.
use std::{
    collections::BTreeSet,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, getrlimit},
    thread::gettid,
};

use crate::{
    process_group::{GroupChild, NewGroup},
    sandbox::{Protection, Sandbox, SandboxMode, SandboxRights, enter},
};

/// The gate. Shells name the limit on processes differently. What follows the limits is the command.
const GATE: &str = "ulimit -c 0 && ulimit -n \"$1\" && { ulimit -u \"$2\" 2>/dev/null || ulimit -p \"$2\"; } && \
                    { [ \"$3\" = - ] || ulimit -d \"$3\"; } || exit 125\nshift 3\nread -r line || exit 125\nexec \"$@\"";

/// The line that the gate waits for, on the worker's socket.
pub(crate) const OPEN_GATE: &[u8] = b"\n";

/// A thread that has ended is gone within microseconds, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Starts a process behind a closed gate.
    ///
    /// # Errors
    /// That of the system, or the sandbox is required and incomplete.
    pub(crate) fn spawn(&self, command: &Command, socket: OwnedFd, scratch: &Path) -> io::Result<GroupChild> {
        let mut gated = self.gated(command, scratch);
        gated.stdin(Stdio::from(socket));
        let user = self.settings.user;
        let rights = SandboxRights { writable: &[scratch], user, has_network: false, group: None };
        spawn_with(&mut gated, &rights, |missing| {
            self.settings.mode == SandboxMode::Required && !missing.is_empty()
        })
    }

    /// The command behind the gate, with the folder for its files.
    fn gated(&self, command: &Command, scratch: &Path) -> Command {
        let most = |resource: Resource, wanted: u64| {
            getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted))
        };
        let memory =
            self.settings.memory_bytes.map(|bytes| (most(Resource::Data, bytes) >> 10).max(1).to_string());
        let mut gated = Command::new("/bin/sh");
        gated.args(["-c", GATE, "sh"]);
        gated.arg(most(Resource::Nofile, self.settings.open_files).to_string());
        gated.arg(most(Resource::Nproc, self.settings.processes).to_string());
        gated.arg(memory.as_deref().unwrap_or("-"));
        gated.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => gated.env(name, value),
                None => gated.env_remove(name),
            };
        }
        gated.env("TMPDIR", scratch).env("HOME", scratch);
        gated
    }
}

/// Starts a process that has only these rights, in a process group of its own. `refuses` says whether the process must not
/// start because of what is missing.
///
/// # Errors
/// That of the system, or `refuses` says so.
pub(super) fn spawn_with(
    command: &mut Command,
    rights: &SandboxRights<'_>,
    refuses: impl Fn(&BTreeSet<Protection>) -> bool + Sync,
) -> io::Result<GroupChild> {
    // A filter would refuse to make a group between fork and exec. It lets the process join this one.
    let group = NewGroup::new()?;
    let rights = SandboxRights { group: Some(group.id()), ..*rights };
    command.process_group(group.id().as_raw_nonzero().get());
    let (child, thread) = thread::scope(|scope| {
        let work = || {
            let missing = enter(&rights);
            if refuses(&missing) {
                let text = format!("the sandbox is incomplete: {missing:?}");
                return (Err(io::Error::other(text)), gettid());
            }
            if let Some(user) =
                rights.user.filter(|user| user.is_another() && !missing.contains(&Protection::User))
            {
                command.uid(user.uid).gid(user.gid);
            }
            (command.spawn(), gettid())
        };
        let thread = thread::Builder::new().name("python-sandbox".into()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread that starts a process has panicked"))
    })?;
    let child = group.joined_by(child?);
    let task = PathBuf::from(format!("/proc/self/task/{}", thread.as_raw_nonzero()));
    ended_soon(&task, child)
}

/// Waits until a thread is gone. Otherwise the process must not go on.
fn ended_soon(task: &Path, child: GroupChild) -> io::Result<GroupChild> {
    let deadline = Instant::now() + PATIENCE;
    while fs::exists(task).unwrap_or(true) {
        if Instant::now() > deadline {
            drop(child);
            return Err(io::Error::other("the thread that has started the process does not end"));
        }
        thread::sleep(Duration::from_micros(50));
    }
    Ok(child)
}

/// What a process that ended before it was an interpreter tells by its status.
pub(crate) fn gate_failure(status: Option<ExitStatus>) -> Option<&'static str> {
    match status?.code()? {
        125 => Some("its limits cannot be set"),
        126 => Some("the user of the sandbox may not run it"),
        127 => Some("it is not there, or the user of the sandbox may not reach it"),
        _ => None,
    }
}
