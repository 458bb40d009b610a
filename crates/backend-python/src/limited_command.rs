//! Runs a program to its end, under a limit of time, and keeps what it writes.
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
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

/// Runs the program after it: in a group that has no terminal, a program that uses the terminal would be stopped.
const UNSTOPPED: &str = "trap '' TTOU TTIN TSTP; exec \"$@\"";

/// Runs a program until it ends, or until the deadline, when it is ended with what it has started. `input` becomes its
/// standard input: whoever holds a lock on it holds the lock together with the program.
///
/// # Errors
/// The program cannot be started, has failed, or was ended.
pub(crate) fn run_until(command: &Command, input: &File, deadline: Instant) -> Result<(), CommandFailed> {
    let name = command.get_program().to_string_lossy();
    let not_run = |error: io::Error| CommandFailed {
        how: format!("'{name}' cannot be run: {error}"),
        output: String::new(),
    };
    let (input, output, errors) = streams(input).map_err(not_run)?;
    let mut shell = behind_shell(command);
    let mut child =
        shell.stdin(input).stdout(errors.0).stderr(errors.1).process_group(0).spawn().map_err(not_run)?;
    let pid = Pid::from_child(&child);
    let is_late = !ends_before(pid, deadline);
    if is_late {
        // The process has not been waited for, so no other group can have its number.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let how = match child.wait() {
        Ok(_) if is_late => format!("'{name}' did not end in time"),
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("'{name}' failed ({status})"),
        Err(error) => format!("'{name}' is lost: {error}"),
    };
    Err(CommandFailed { how, output: end_of(output).unwrap_or_default() })
}

fn behind_shell(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", UNSTOPPED, "sh"]).arg(command.get_program()).args(command.get_args());
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

type Outputs = (Stdio, Stdio);

fn streams(input: &File) -> io::Result<(Stdio, File, Outputs)> {
    let output = tempfile::tempfile()?;
    let outputs = (Stdio::from(output.try_clone()?), Stdio::from(output.try_clone()?));
    Ok((Stdio::from(input.try_clone()?), output, outputs))
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
        let failed = run("echo begun; sleep 1000 & wait", Duration::from_millis(300)).unwrap_err();
        assert_eq!((failed.how.as_str(), failed.output.as_str()), ("'sh' did not end in time", "begun\n"));
        let missing = Command::new("/nowhere/program");
        let failed = run_until(&missing, &tempfile::tempfile().unwrap(), Instant::now() + long).unwrap_err();
        assert_eq!(failed.how, "'/nowhere/program' failed (exit status: 127)");
    }

    #[test]
    fn only_the_end_of_much_output_is_kept() {
        let failed = run("yes | head -c 1000000; echo last; exit 1", Duration::from_secs(60)).unwrap_err();
        assert!(failed.output.ends_with("y\nlast\n") && failed.output.len() as u64 <= KEPT_BYTES);
    }
}
