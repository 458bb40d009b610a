//! How a process starts in a sandbox.
//!
//! The thread that has entered the sandbox shares the server's memory, and processes of one sandbox may signal and trace
//! each other. So the thread must have ended before code of the model runs. A worker begins as a shell, the gate, that
//! sets limits and waits for a line. The server opens the gate when the thread is gone, and the shell becomes the
//! interpreter.
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::thread::gettid;

use super::{files, privileges, protection::Protection, rights::SandboxRights, system_calls};
use crate::process_group::{GroupChild, NewGroup};

/// A thread that has ended is gone within microseconds, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the rights of the calling thread away but for these. Returns what cannot be taken.
pub(super) fn enter(rights: &SandboxRights<'_>) -> BTreeSet<Protection> {
    // Landlock and seccomp need a thread that cannot get new privileges.
    let mut missing = privileges::drop_all(rights.user);
    missing.extend(files::restrict(rights));
    missing.extend(system_calls::restrict(rights));
    missing.into_iter().collect()
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
