//! Runs a program to its end, under a limit of time, and keeps what it writes.
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    process::Command,
    time::Instant,
};

use rustix::process::{PidfdFlags, pidfd_open};

use crate::{process_group::GroupChild, process_mark::ends_before, sandbox::InstallerSandbox};

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
/// however that ends. The program holds `lock` open: a lock on it lasts as long as the program. With `sandbox`, the program
/// runs in it.
///
/// # Errors
/// The program cannot be started, has failed, or was ended.
pub(crate) fn run_until(
    command: &Command,
    sandbox: Option<InstallerSandbox<'_>>,
    lock: &File,
    deadline: Instant,
) -> Result<(), CommandFailed> {
    let name = command.get_program().to_string_lossy();
    let not_run = |error: io::Error| CommandFailed {
        how: format!("'{name}' cannot be run: {error}"),
        output: String::new(),
    };
    let output = tempfile::tempfile().map_err(not_run)?;
    // Dropped last: then the rest of the group ends, if it has not ended.
    let (theirs, _ours) = io::pipe().map_err(not_run)?;
    let mut shell = behind_shell(command, sandbox);
    shell
        .stdin(theirs)
        .stdout(output.try_clone().map_err(not_run)?)
        .stderr(lock.try_clone().map_err(not_run)?);
    let child = match sandbox {
        None => GroupChild::spawn(&mut shell),
        Some(sandbox) => sandbox.spawn(&mut shell),
    };
    let mut child = child.map_err(not_run)?;
    // The command has copies of the descriptors.
    drop(shell);
    let watched = pidfd_open(child.pid(), PidfdFlags::empty());
    let is_late = watched.is_ok_and(|process| !ends_before(&process, deadline));
    let how = match child.end() {
        Some(Ok(_)) if is_late => format!("'{name}' did not end in time"),
        Some(Ok(status)) if status.success() => return Ok(()),
        Some(Ok(status)) => format!("'{name}' failed ({status})"),
        Some(Err(error)) => format!("'{name}' is lost: {error}"),
        None => format!("'{name}' is lost"),
    };
    Err(CommandFailed { how, output: end_of(output).unwrap_or_default() })
}

fn behind_shell(command: &Command, sandbox: Option<InstallerSandbox<'_>>) -> Command {
    let mut shell = Command::new("/bin/sh");
    if let Some(sandbox) = sandbox {
        sandbox.limit_variables(&mut shell);
    }
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
    use crate::sandbox::SandboxMode;

    fn run(script: &str, limit: Duration) -> Result<(), CommandFailed> {
        let mut command = Command::new("sh");
        run_until(command.args(["-c", script]), None, &tempfile::tempfile().unwrap(), Instant::now() + limit)
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
        let failed =
            run_until(&missing, None, &tempfile::tempfile().unwrap(), Instant::now() + long).unwrap_err();
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

    #[test]
    fn a_program_in_a_sandbox_writes_to_its_folders_and_has_no_variables_of_the_server() {
        let (environment, private) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outside = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let writable = [environment.path(), private.path()];
        let run = |script: String, has_network: bool| {
            let mut command = Command::new("bash");
            command.args(["-c", &script]);
            let sandbox =
                InstallerSandbox { mode: SandboxMode::BestEffort, writable: &writable, has_network };
            let deadline = Instant::now() + Duration::from_secs(60);
            run_until(&command, Some(sandbox), &tempfile::tempfile().unwrap(), deadline)
        };
        let writes = |folder: &std::path::Path| format!("echo x > {}/file", folder.display());
        assert!(run(writes(environment.path()), true).is_ok());
        assert!(
            run("echo x > $TMPDIR/file".to_owned(), true).is_ok() && private.path().join("file").exists()
        );
        assert!(run(writes(outside.path()), true).is_err());
        // Cargo sets this one for the tests.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(run("[ -z \"${CARGO_MANIFEST_DIR+x}\" ] && [ -n \"$PATH\" ]".to_owned(), true).is_ok());
        let connects = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        assert!(run(connects.clone(), true).is_ok());
        assert!(run(connects, false).is_err());
        assert!(run("kill -0 1".to_owned(), true).is_err());
    }
}
