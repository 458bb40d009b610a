//! Starts programs, and servers that end with this program.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::descendants;
use crate::supervised::last_lines;

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
        sleep(STEP);
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
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    // Where a program lies says little.
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A server process. Dropping this asks it to end, then waits for it.
pub(crate) struct ServerProcess {
    child: Child,
    log: PathBuf,
    ready_after: Duration,
}

/// How long a server may take to be ready, and to end.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);
/// How often a program that runs for long is mentioned.
const PROGRESS: Duration = Duration::from_secs(10);

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
            ensure!(
                start.elapsed() < START_TIMEOUT,
                "the server is not ready; its log ends:\n{}",
                server.log_end()
            );
            if start.elapsed().as_secs() > shown {
                shown = start.elapsed().as_secs();
                println!("      waiting for the server, {shown} s");
            }
            sleep(STEP);
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
        while asked.is_ok() && start.elapsed() < START_TIMEOUT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(STEP);
        }
        // Errors mean that the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports on which no program listens now.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// The first of three free ports in a row.
pub(crate) fn free_port_base() -> Result<u16> {
    loop {
        let [base] = free_ports()?;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if base < u16::MAX - 2 && free(base + 1) && free(base + 2) {
            return Ok(base);
        }
    }
}

/// Status and body of a GET request on this machine.
pub(crate) fn http_get(port: u16, path: &str) -> Result<(u16, String)> {
    http(port, "GET", path)
}

/// Status and body of a POST request without a body on this machine.
pub(crate) fn http_post(port: u16, path: &str) -> Result<(u16, String)> {
    http(port, "POST", path)
}

fn http(port: u16, method: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close");
    write!(stream, "{head}\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = BufReader::new(stream);
    let mut head = String::new();
    answer.read_line(&mut head)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("the answer is not HTTP")?;
    let mut length = None;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().context("the length of the answer is no number")?);
        }
    }
    // The connection may stay open: the processes that the reference server starts inherit its descriptors.
    let mut body = String::new();
    answer.take(length.unwrap_or(u64::MAX)).read_to_string(&mut body)?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_tree;

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
    fn free_ports_differ() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }

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

    #[test]
    fn the_output_of_a_program_does_not_wait_for_processes_that_it_leaves() {
        let mut program = Command::new("sh");
        program.args(["-c", "sleep 600 & echo $!"]);
        let sleeping = output(&mut program).unwrap();
        let sleeping = sleeping.trim().parse().unwrap();
        assert!(process_tree::is_running(sleeping));
        descendants::end(sleeping, Duration::ZERO);
    }
}
