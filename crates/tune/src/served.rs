//! The server that is measured: a child process with a port of its own, and the few requests that the command sends to it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Tells whether the user wants the end.
#[derive(Clone, Default)]
pub struct Interruption(pub Arc<AtomicBool>);

impl Interruption {
    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The user wants the end.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.is_asked(), "interrupted");
        Ok(())
    }
}

/// How long the server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a load of the model may take.
pub const LOAD_TIMEOUT: Duration = Duration::from_secs(300);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to end after it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A child process that ends with its owner.
pub struct OwnedChild(Child);

impl OwnedChild {
    /// Starts a process that does not get the signals of the terminal.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<OwnedChild> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        Ok(OwnedChild(child.with_context(|| format!("cannot start {:?}", command.get_program()))?))
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The user wants the end, or the time is over.
    pub fn wait(&mut self, patience: Duration, interruption: &Interruption) -> Result<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            interruption.check()?;
            ensure!(Instant::now() < end, "no end after {} s", patience.as_secs());
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // The process may have ended already. Then both calls have nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that ends a process when this program has ended in whatever way: then its input closes.
struct ChildGuard(Child);

impl ChildGuard {
    fn start(process: u32) -> Result<ChildGuard> {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; kill \"$0\""]).arg(process.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(ChildGuard(command.process_group(0).spawn().context("cannot start a shell")?))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server.
pub struct ServedModel {
    // Dropped first, so that it ends before the process whose id it knows.
    guard: ChildGuard,
    process: OwnedChild,
    log: PathBuf,
    /// The port for HTTP on this machine.
    pub port: u16,
    model: String,
    interruption: Interruption,
}

/// How the server is started.
pub struct ServerLine<'a> {
    /// The program.
    pub program: &'a Path,
    /// The repository.
    pub models: &'a Path,
    /// Where its log goes.
    pub log: PathBuf,
    /// Further options.
    pub options: &'a [String],
}

impl ServedModel {
    /// Starts a server that has loaded nothing yet, and waits until it listens.
    ///
    /// # Errors
    /// It ends, with the end of its log; or it does not listen in time.
    pub fn start(line: ServerLine<'_>, model: &str, interruption: &Interruption) -> Result<ServedModel> {
        let log =
            fs::File::create(&line.log).with_context(|| format!("cannot write {}", line.log.display()))?;
        let mut command = Command::new(line.program);
        command.args(["--model-control-mode=explicit", "--http-address=127.0.0.1", "--http-port=0"]);
        command.args(["--allow-grpc=false", "--allow-metrics=false"]);
        command.arg(format!("--model-repository={}", line.models.display())).args(line.options);
        // Python models leave no files in the user's directories.
        command.env("PYTHONDONTWRITEBYTECODE", "1").stdout(log.try_clone()?).stderr(log);
        let mut process = OwnedChild::start(&mut command)?;
        let guard = ChildGuard::start(process.id())?;
        let end = Instant::now() + START_TIMEOUT;
        let port = loop {
            let text = fs::read_to_string(&line.log).unwrap_or_default();
            if let Some(port) = port_of(&text) {
                break port;
            }
            if let Some(status) = process.0.try_wait()? {
                bail!("the server ended ({status}):\n{}", last_lines(&text));
            }
            interruption.check()?;
            ensure!(Instant::now() < end, "the server does not listen:\n{}", last_lines(&text));
            sleep(POLL_INTERVAL);
        };
        let (model, interruption) = (model.to_owned(), interruption.clone());
        Ok(ServedModel { guard, process, log: line.log, port, model, interruption })
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Loads the model, or loads it again with the configuration that its directory has now.
    ///
    /// # Errors
    /// The server's error, or the load takes too long.
    pub fn load(&self, patience: Duration) -> Result<()> {
        let path = format!("/v2/repository/models/{}/load", escaped(&self.model));
        self.exchange("POST", &path, patience.min(LOAD_TIMEOUT)).map(drop)
    }

    /// The configuration that the server uses.
    ///
    /// # Errors
    /// The server's error.
    pub fn config(&self) -> Result<proto::ModelConfig> {
        let text =
            self.exchange("GET", &format!("/v2/models/{}/config", escaped(&self.model)), ANSWER_TIMEOUT)?;
        Ok(proto::json::parse(&text)?.config)
    }

    /// The statistics of the model.
    ///
    /// # Errors
    /// The server's error.
    pub fn statistics(&self) -> Result<Value> {
        let text =
            self.exchange("GET", &format!("/v2/models/{}/stats", escaped(&self.model)), ANSWER_TIMEOUT)?;
        serde_json::from_str(&text).context("the statistics are not JSON")
    }

    fn exchange(&self, method: &str, path: &str, patience: Duration) -> Result<String> {
        let asked = exchange(self.port, &format!("{method} {path}"), patience, &self.interruption);
        let (status, body) = asked.with_context(|| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            format!("{method} {path}; the server's log ends with:\n{}", last_lines(&log))
        })?;
        if status != 200 {
            let told = serde_json::from_str::<Value>(&body).ok();
            let told = told.and_then(|told| told["error"].as_str().map(str::to_owned)).unwrap_or(body);
            bail!("{}", told.trim());
        }
        Ok(body)
    }

    /// Asks the server to end, and waits.
    pub fn stop(mut self) {
        drop(self.guard);
        // The standard library sends SIGKILL only. A model in Python should get the time to end in order.
        let asked = Command::new("kill").arg(self.process.id().to_string()).stderr(Stdio::null()).status();
        if asked.is_ok_and(|status| status.success()) {
            // If it does not end, it is killed when it is dropped.
            let _ = self.process.wait(END_TIMEOUT, &Interruption::default());
        }
    }
}

fn port_of(log: &str) -> Option<u16> {
    let line = log.lines().find(|line| line.contains("Started HTTPService at "))?;
    line.trim_end_matches(['"', '}', ' ']).rsplit(':').next()?.trim().parse().ok()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().rev().take(12).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// A name as a part of a URL.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Sends a request without a body, and returns status and body. The server closes the connection after its answer.
fn exchange(
    port: u16,
    target: &str,
    patience: Duration,
    interruption: &Interruption,
) -> Result<(u16, String)> {
    let end = Instant::now() + patience;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let head = "Host: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{target} HTTP/1.1\r\n{head}").as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        interruption.check()?;
        ensure!(Instant::now() < end, "no answer after {} s", patience.as_secs());
        ensure!(answer.len() <= MOST_ANSWER_BYTES, "the answer has more than {MOST_ANSWER_BYTES} bytes");
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of its headers")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.context("the answer has no status")?, body.to_owned()))
}

const MOST_ANSWER_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_the_port() {
        assert_eq!(port_of("I1 x] starting\nI1 x] Started HTTPService at 127.0.0.1:43121\n"), Some(43121));
        assert_eq!(port_of("I1 x] starting\n"), None);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a b/c.1"), "a%20b%2Fc.1");
    }

    #[test]
    fn a_guard_ends_a_process_when_its_input_closes() {
        let mut child = OwnedChild::start(testing::command("sleep").arg("600")).unwrap();
        let mut guard = ChildGuard::start(child.id()).unwrap();
        // As if this program had ended.
        drop(guard.0.stdin.take());
        let status = child.wait(Duration::from_secs(60), &Interruption::default()).unwrap();
        assert!(!status.success());
    }

    #[test]
    fn a_child_ends_with_its_owner_and_is_not_waited_for_after_an_interruption() {
        let mut child = OwnedChild::start(testing::command("sleep").arg("600")).unwrap();
        let asked = Interruption(Arc::new(AtomicBool::new(true)));
        assert!(
            child.wait(Duration::from_secs(600), &asked).unwrap_err().to_string().contains("interrupted")
        );
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(process.exists());
        drop(child);
        assert!(!process.exists());
    }
}
