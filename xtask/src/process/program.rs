//! Runs programs to their end.

use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::descendants;

const PAUSE: Duration = Duration::from_millis(20);
/// How often a program that runs for long is mentioned.
const PROGRESS: Duration = Duration::from_secs(10);

/// Runs a program to its end and shows its output.
///
/// # Errors
/// The program cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs a program to its end, or to its limit, and shows its output. Says from time to time that it still runs.
///
/// # Errors
/// As [`run`]; or the program was ended at its limit.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    let mut child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
    let start = Instant::now();
    let mut shown = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{} ended with {status}", line(command));
            return Ok(());
        }
        let time = start.elapsed();
        if time >= limit {
            descendants::end(child.id(), descendants::GRACE);
            child.wait()?;
            bail!("{} was ended at its limit of {} s", line(command), limit.as_secs());
        }
        if time >= shown + PROGRESS {
            shown = time;
            println!("   still at it, {} s", time.as_secs());
        }
        sleep(PAUSE);
    }
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// The program cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    // A file ends when the program ends. A pipe ends only when no process that the program has left holds it.
    let mut file = tempfile::tempfile().context("cannot make a file for the output")?;
    let child = command.stdout(file.try_clone()?).stderr(Stdio::inherit()).spawn();
    let status = child.with_context(|| format!("cannot start {}", line(command)))?.wait()?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    file.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("{} wrote no text", line(command)))?;
    Ok(text)
}

/// Whether a program is there and starts.
pub(crate) fn starts(program: impl AsRef<OsStr>) -> bool {
    starts_with(program, "--version")
}

/// As [`starts`], of a program with another option that makes it tell its version.
pub(crate) fn starts_with(program: impl AsRef<OsStr>, version_option: &str) -> bool {
    let status =
        Command::new(program).arg(version_option).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Fails unless a program of the system is there. It belongs to a package that a user must install.
///
/// # Errors
/// The program cannot be started. The error names the package of Debian.
pub(crate) fn require(program: &str, package: &str) -> Result<()> {
    if !starts(program) {
        bail!("{program} is not installed (on Debian: apt-get install {package})");
    }
    Ok(())
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    // Where a program lies says little.
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tree;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let error = run(Command::new("false").arg("x")).unwrap_err().to_string();
        assert!(error.starts_with("false x ended with"), "{error}");
        assert!(run(&mut Command::new("no-such-program")).unwrap_err().to_string().contains("cannot start"));
    }

    #[test]
    fn a_program_is_ended_at_its_limit() {
        let error = run_within(Command::new("sleep").arg("600"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "sleep 600 was ended at its limit of 0 s");
        run_within(&mut Command::new("true"), Duration::from_secs(60)).unwrap();
        let error = run_within(&mut Command::new("false"), Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().starts_with("false ended with"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require("no-such-program", "no-such-package").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("apt-get install no-such-package"));
        require("cat", "coreutils").unwrap();
    }

    #[test]
    fn the_output_of_a_program_does_not_wait_for_processes_that_it_leaves() {
        let mut program = Command::new("sh");
        program.args(["-c", "sleep 600 & echo $!"]);
        let sleeping = output(&mut program).unwrap();
        let sleeping = sleeping.trim().parse().unwrap();
        assert!(tree::is_running(sleeping));
        descendants::end(sleeping, Duration::ZERO);
    }
}
