//! Starts programs, and servers that end with this program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::children;

/// Runs a program to its end and shows its output.
///
/// # Errors
/// The program cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs a program to its end and shows its output. If it fails, the error repeats the lines of its standard output that
/// begin with one of these words: a reader of a long log looks at its end.
///
/// # Errors
/// The program cannot be started or fails.
pub(crate) fn run_repeating(command: &mut Command, words: &[&str]) -> Result<()> {
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {}", line(command)))?;
    let mut repeated = String::new();
    for text in BufReader::new(child.stdout.take().context("the output is a pipe")?).split(b'\n') {
        let text = String::from_utf8_lossy(&text?).into_owned();
        println!("{text}");
        if words.iter().any(|word| text.starts_with(word)) {
            repeated.push('\n');
            repeated.push_str(&text);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}{repeated}", line(command));
    Ok(())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// The program cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(output.status.success(), "{} ended with {}", line(command), output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{} wrote no text", line(command)))
}

/// A program that runs beside this one.
pub(crate) struct BackgroundProcess {
    child: Child,
    words: String,
    log: PathBuf,
    _watched: children::Child,
}

impl BackgroundProcess {
    /// Starts a program with its output in a file.
    ///
    /// # Errors
    /// The program cannot be started, or the file cannot be written.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<BackgroundProcess> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let words = line(command);
        let child = command.spawn().with_context(|| format!("cannot start {words}"))?;
        let watched = children::Child::watch(child.id())?;
        Ok(BackgroundProcess { child, words, log, _watched: watched })
    }

    /// Waits for its end, and shows its output.
    ///
    /// # Errors
    /// The program fails.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(&self.log)?));
        ensure!(status.success(), "{} ended with {status}", self.words);
        Ok(())
    }
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A server process. Dropping this asks it to end, then waits for it.
pub(crate) struct ServerProcess {
    child: Child,
    log: PathBuf,
    ready_after: Duration,
    _watched: children::Child,
}

/// How long a server may take to be ready, and to end.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

impl ServerProcess {
    /// Starts the command with its output in `log` and waits until it is ready at the HTTP port.
    ///
    /// # Errors
    /// The server ends early or is not ready in time. The error contains the end of its log.
    pub(crate) fn start(command: &mut Command, log: PathBuf, http_port: u16) -> Result<ServerProcess> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
        let watched = children::Child::watch(child.id())?;
        let mut server = ServerProcess { child, log, ready_after: Duration::ZERO, _watched: watched };
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
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
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

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let error = run(Command::new("false").arg("x")).unwrap_err().to_string();
        assert!(error.starts_with("false x ended with"), "{error}");
        assert!(run(&mut Command::new("no-such-program")).unwrap_err().to_string().contains("cannot start"));
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
    fn the_error_of_a_failed_program_repeats_the_marked_lines() {
        let mut program = Command::new("sh");
        program.args(["-c", "echo FAILED one; echo passed two; echo FAILED three; exit 3"]);
        let error = run_repeating(&mut program, &["FAILED "]).unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3\nFAILED one\nFAILED three"), "{error}");
        run_repeating(Command::new("echo").arg("FAILED never"), &["FAILED "]).unwrap();
    }
}
