//! The processes that this program has started, and those that these have started: none outlives it.
//!
//! The program adopts processes whose parents have ended. So each process that comes from it is below it in the tree,
//! whatever session or group it has made for itself. Nobody has to keep a list.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::tree::{self, RunningProcess};

/// How long processes have to end in order, before they are killed.
pub(crate) const GRACE: Duration = Duration::from_secs(15);
/// How long a process that was told to end, or whose work is done, may still be seen.
const REST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Adopts processes, and lets Ctrl-C, SIGTERM and SIGHUP end all of them together with this program.
///
/// # Errors
/// The system has no such service, or the signals cannot be caught.
pub(crate) fn end_with_this_program() -> Result<()> {
    adopt()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            }
        });
        let begun = running();
        if number == Signal::INT && !begun.is_empty() {
            eprintln!("\ninterrupted: ending {} processes", begun.len());
        }
        let killed = end_all(GRACE);
        if number == Signal::INT {
            match killed.len() {
                0 => eprintln!("all processes have ended"),
                count => eprintln!("{count} processes did not end in order and were killed"),
            }
        }
        // The exit code that a shell reports for a program that a signal has ended.
        std::process::exit(128 + number.as_raw());
    })?;
    Ok(())
}

/// From now on, processes whose parent ends become children of this one.
fn adopt() -> Result<()> {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).context("this system does not pass processes on")
}

/// All descendants that run now.
pub(crate) fn running() -> Vec<RunningProcess> {
    // Without `/proc` nothing can be said, and nothing is there to be ended.
    tree::running_below(std::process::id()).unwrap_or_default()
}

/// The descendants that still run after a short while. Those that are just ending do not count.
pub(crate) fn remaining() -> Vec<RunningProcess> {
    let start = Instant::now();
    loop {
        let remaining = running();
        if remaining.is_empty() || start.elapsed() > REST {
            return remaining;
        }
        sleep(PAUSE);
    }
}

/// Asks the children to end, then the processes that they leave. What does not end is killed, and returned.
pub(crate) fn end_all(grace: Duration) -> Vec<RunningProcess> {
    let own = std::process::id();
    let start = Instant::now();
    let mut asked = Vec::new();
    loop {
        let running = running();
        if running.is_empty() {
            return running;
        }
        if start.elapsed() > grace {
            kill_all();
            return running;
        }
        // A child ends its own children, in its own order.
        for child in running.iter().filter(|process| process.parent == own) {
            if !asked.contains(&child.pid) {
                asked.push(child.pid);
                send(child.pid, Signal::TERM);
            }
        }
        sleep(PAUSE);
    }
}

/// Kills all descendants, also those that are started meanwhile.
fn kill_all() {
    let start = Instant::now();
    loop {
        let running = running();
        if running.is_empty() || start.elapsed() > REST {
            return;
        }
        for process in running {
            send(process.pid, Signal::KILL);
        }
        sleep(PAUSE);
    }
}

/// Ends a process, in order if it can within this time, and everything that was below it.
pub(crate) fn end(root: u32, grace: Duration) {
    let below = || tree::running_below(root).unwrap_or_default();
    // When the root has ended, those below it have other parents.
    let mut known: BTreeSet<u32> = below().iter().map(|process| process.pid).collect();
    send(root, Signal::TERM);
    let start = Instant::now();
    while tree::is_running(root) {
        known.extend(below().iter().map(|process| process.pid));
        if start.elapsed() > grace {
            send(root, Signal::KILL);
        }
        sleep(PAUSE);
    }
    known.retain(|pid| tree::is_running(*pid));
    for pid in known {
        send(pid, Signal::KILL);
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // An error means that the process has ended.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::tree::is_running;
    use crate::steps::{self, CheckStep};

    /// Set in the processes that the tests start: what they do.
    const ROLE: &str = "XTASK_TEST_ROLE";

    /// Starts the test of this name again, with a role.
    fn again(name: &str) -> std::process::Child {
        let name = format!("process::descendants::tests::{name}");
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(ROLE, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn has_role() -> bool {
        std::env::var_os(ROLE).is_some()
    }

    /// A process whose parent ends at once, in a session of its own.
    fn leave_a_process() -> u32 {
        let script = "setsid sleep 600 >/dev/null & echo $!";
        crate::process::output(Command::new("sh").args(["-c", script])).unwrap().trim().parse().unwrap()
    }

    /// The number behind a word in the output.
    fn number_after(word: &str, output: impl BufRead) -> u32 {
        let line = output.lines().map_while(Result::ok).find_map(|line| {
            let (_, number) = line.split_once(word)?;
            number.trim().parse().ok()
        });
        line.unwrap()
    }

    #[test]
    fn processes_that_others_left_end_with_a_program_that_is_terminated() {
        if has_role() {
            end_with_this_program().unwrap();
            println!("left {}", leave_a_process());
            // The other thread ends the process.
            loop {
                std::thread::park();
            }
        }
        let mut program = again("processes_that_others_left_end_with_a_program_that_is_terminated");
        let left = number_after("left ", BufReader::new(program.stdout.take().unwrap()));
        assert!(is_running(left));
        send(program.id(), Signal::TERM);
        assert_eq!(program.wait().unwrap().code(), Some(128 + 15));
        assert!(!is_running(left), "a process outlives the program");
    }

    #[test]
    fn a_step_that_leaves_a_process_fails_and_names_it() {
        if has_role() {
            end_with_this_program().unwrap();
            let leaves = || {
                println!("left {}", leave_a_process());
                Ok(())
            };
            let step = CheckStep { name: "leaves", limit: Duration::from_secs(60), action: leaves };
            std::fs::create_dir_all(steps::file("leaves", "log").parent().unwrap()).unwrap();
            println!("passed {}", u32::from(steps::perform(&step).unwrap()));
            return;
        }
        let mut program = again("a_step_that_leaves_a_process_fails_and_names_it");
        let mut output = BufReader::new(program.stdout.take().unwrap());
        let left = number_after("left ", &mut output);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
        assert!(program.wait().unwrap().success());
        assert!(rest.contains(&format!("process {left}: sleep 600")), "{rest}");
        assert!(rest.contains("passed 0"), "{rest}");
        assert!(!is_running(left));
    }
}
