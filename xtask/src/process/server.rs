//! A server that ends with this program.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::program::line;
use crate::files::last_lines;
use crate::loopback::http_get;

/// How long a server may take to be ready, and to end.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A server process. Dropping this asks it to end, then waits for it.
pub(crate) struct ServerProcess {
    child: Child,
    log: PathBuf,
    ready_after: Duration,
}

impl ServerProcess {
    /// Starts the command with its output in `log` and waits until it is ready at the HTTP port.
    ///
    /// # Errors
    /// The server ends early or is not ready in time. The error contains the end of its log.
    pub(crate) fn start(command: &mut Command, log: PathBuf, http_port: u16) -> Result<ServerProcess> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        // In a group of its own, it is asked once to end when a user presses Ctrl-C: by this program.
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
        let mut server = ServerProcess { child, log, ready_after: Duration::ZERO };
        let mut shown = 0;
        while !matches!(http_get(http_port, "/v2/health/ready"), Ok((200, _))) && !server.says_ready() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}; its log ends:\n{}", server.log_end());
            }
            ensure!(start.elapsed() < LIMIT, "the server is not ready; its log ends:\n{}", server.log_end());
            if start.elapsed().as_secs() > shown {
                shown = start.elapsed().as_secs();
                println!("      waiting for the server, {shown} s");
            }
            sleep(PAUSE);
        }
        server.ready_after = start.elapsed();
        Ok(server)
    }

    /// How long the server took from its start until it was ready, within the time between two looks.
    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server ends by itself.
    pub(crate) fn wait(mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Whether the log says so. A port with TLS answers no plain request.
    fn says_ready(&self) -> bool {
        fs::read(&self.log).is_ok_and(|text| String::from_utf8_lossy(&text).contains("\"ready in "))
    }

    fn log_end(&self) -> String {
        last_lines(&self.log, 20)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The standard library can only kill; a server needs SIGTERM.
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let start = Instant::now();
        while asked.is_ok() && start.elapsed() < LIMIT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(PAUSE);
        }
        // Errors mean that the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::free_ports;

    #[test]
    fn a_server_that_ends_early_shows_its_log() {
        let log = std::env::temp_dir().join(format!("xtask-{}.log", std::process::id()));
        let [port] = free_ports().unwrap();
        let started =
            ServerProcess::start(Command::new("sh").args(["-c", "echo cannot; exit 3"]), log.clone(), port);
        let error = started.err().unwrap().to_string();
        assert!(error.contains("cannot") && error.contains('3'), "{error}");
        fs::remove_file(log).unwrap();
    }
}
