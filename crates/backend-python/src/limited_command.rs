//! Runs a program to its end, under a limit of time, and keeps what it writes.
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    process::Command,
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

/// Why a program has failed, and the end of what it wrote.
#[derive(Debug)]
pub(crate) struct CommandFailed {
    pub(crate) how: String,
    pub(crate) output: String,
}

/// The end of the output that is kept.
const KEPT_BYTES: u64 = 32 << 10;

/// Runs the program that follows. In a group without a terminal, a program that uses the terminal would be stopped, unless
/// it ignores the signals. The standard input ends with the server: then the group ends, too. What is the standard error at
/// the beginning is kept open.
const WATCHED: &str = "trap '' TTOU TTIN TSTP; exec 8<&0 9>&2 2>&1\n{ read -r line <&8; kill -KILL 0; } &\n\
                       exec \"$@\" </dev/null 8<&-";

/// Runs a program until it ends, or until the deadline, when it is ended with what it has started. It ends with the server,
/// however that ends. The program holds `lock` open: a lock on it lasts as long as the program.
///
/// # Errors
/// The program cannot be started, has failed, or was ended.
pub(crate) fn run_until(command: &Command, lock: &File, deadline: Instant) -> Result<(), CommandFailed> {
    let name = command.get_program().to_string_lossy();
    let not_run = |error: io::Error| CommandFailed {
        how: format!("'{name}' cannot be run: {error}"),
        output: String::new(),
    };
    let output = tempfile::tempfile().map_err(not_run)?;
    let (theirs, ours) = io::pipe().map_err(not_run)?;
    let mut shell = behind_shell(command);
    shell
        .stdin(theirs)
        .stdout(output.try_clone().map_err(not_run)?)
        .stderr(lock.try_clone().map_err(not_run)?);
    let mut child = shell.process_group(0).spawn().map_err(not_run)?;
    // The command has copies of the descriptors.
    drop(shell);
    let pid = Pid::from_child(&child);
    let is_late = !ends_before(pid, deadline);
    if is_late {
        // The process has not been waited for, so no other group can have its number.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let ended = child.wait();
    // Ends what is left of the group.
    drop(ours);
    let how = match ended {
        Ok(_) if is_late => format!("'{name}' did not end in time"),
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("'{name}' failed ({status})"),
        Err(error) => format!("'{name}' is lost: {error}"),
    };
    Err(CommandFailed { how, output: end_of(output).unwrap_or_default() })
}

fn behind_shell(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WATCHED, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(place) = command.get_current_dir() {
        shell.current_dir(place);
    }
    shell
}

fn ends_before(pid: Pid, deadline: Instant) -> bool {
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::try_from(left).unwrap_or_default())) {
            Ok(0) => return false,
            Ok(_) => return true,
            // An interrupted wait goes on.
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// The last lines of a file.
fn end_of(mut file: File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(KEPT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(KEPT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(script: &str, limit: Duration) -> Result<(), CommandFailed> {
        let mut command = Command::new("sh");
        run_until(command.args(["-c", script]), &tempfile::tempfile().unwrap(), Instant::now() + limit)
    }

    #[test]
    fn a_program_ends_or_is_ended_and_its_words_are_kept() {
        let long = Duration::from_secs(60);
        assert!(run("exit 0", long).is_ok());
        let failed = run("echo out; echo err >&2; exit 3", long).unwrap_err();
        assert_eq!(
            (failed.how.as_str(), failed.output.as_str()),
            ("'sh' failed (exit status: 3)", "out\nerr\n")
        );
        // A slow machine needs more time until the program begins.
        let mut limit = Duration::from_millis(100);
        let failed = loop {
            let failed = run("echo begun; sleep 1000 & wait", limit).unwrap_err();
            if !failed.output.is_empty() {
                break failed;
            }
            limit *= 2;
        };
        assert_eq!((failed.how.as_str(), failed.output.as_str()), ("'sh' did not end in time", "begun\n"));
        let missing = Command::new("/nowhere/program");
        let failed = run_until(&missing, &tempfile::tempfile().unwrap(), Instant::now() + long).unwrap_err();
        assert_eq!(failed.how, "'/nowhere/program' failed (exit status: 127)");
    }

    #[test]
    fn what_a_program_leaves_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        run(&format!("sleep 1000 & echo $! > {}", pid.display()), Duration::from_secs(60)).unwrap();
        let pid = std::fs::read_to_string(pid).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        // The init process of the system waits for it at any time: until then it is a zombie.
        while !(state().is_empty() || state().contains(") Z ")) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_the_end_of_much_output_is_kept() {
        let failed = run("yes | head -c 1000000; echo last; exit 1", Duration::from_secs(60)).unwrap_err();
        assert!(failed.output.ends_with("y\nlast\n") && failed.output.len() as u64 <= KEPT_BYTES);
    }
}
