//! Ends server processes together with this program, also if a signal ends it.
//!
//! Ctrl-C reaches a whole group of processes; SIGTERM and SIGHUP reach this one only. A thread waits for them, passes
//! SIGTERM on to every server that runs, and ends the program.

use std::sync::{Mutex, Once};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

/// A running server. Dropping this removes it from the list.
pub(crate) struct Child(u32);

impl Child {
    /// Lets SIGTERM and SIGHUP end the server too.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(crate) fn watch(id: u32) -> Result<Self> {
        let mut started = Ok(());
        WATCH.call_once(|| started = watch_signals());
        started?;
        running().push(id);
        Ok(Self(id))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        running().retain(|id| *id != self.0);
    }
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    // If a thread panicked while it held the lock, the list of numbers is still valid.
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn watch_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut hangup) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            }
        });
        for id in running().iter() {
            if let Some(id) = i32::try_from(*id).ok().and_then(Pid::from_raw) {
                // An error means that the server has ended.
                let _ = kill_process(id, Signal::TERM);
            }
        }
        // The exit code that a shell reports for a program that a signal has ended.
        std::process::exit(128 + number.as_raw());
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    /// Set in the process that the test below starts and ends with a signal.
    const ROLE: &str = "XTASK_TEST_HAS_A_SERVER";

    /// Whether the process runs. A process that has ended and was not waited for does not run.
    fn runs(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    #[test]
    fn a_server_ends_with_a_program_that_is_terminated() {
        if std::env::var_os(ROLE).is_some() {
            let mut server = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
            let _watched = Child::watch(server.id()).unwrap();
            eprintln!("server {}", server.id());
            server.wait().unwrap();
            // The other thread ends the process.
            loop {
                std::thread::park();
            }
        }
        let name = "children::tests::a_server_ends_with_a_program_that_is_terminated";
        let mut program = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ROLE, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(program.stderr.take().unwrap()).lines();
        let server =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("server ").map(str::to_owned));
        let server = server.unwrap();
        assert!(runs(&server));
        kill_process(Pid::from_child(&program), Signal::TERM).unwrap();
        assert_eq!(program.wait().unwrap().code(), Some(128 + 15));
        let deadline = Instant::now() + Duration::from_secs(20);
        while runs(&server) {
            assert!(Instant::now() < deadline, "the server outlives its program");
            std::thread::yield_now();
        }
    }
}
