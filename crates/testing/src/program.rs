//! Runs the server as a program: where it listens, what it logs, how it ends.
use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use inference::lock::{Condvar, Mutex};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use crate::{TestProcess, command, http::TIMEOUT};

/// A running program, which ends with this value.
#[derive(Debug)]
pub struct Program {
    child: TestProcess,
    log: Arc<Log>,
    /// Its lines on stderr: warnings and errors.
    complaints: Arc<Log>,
    readers: Vec<JoinHandle<()>>,
}

/// The logged lines so far.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<(Vec<String>, End)>,
    grown: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Closed,
}

impl Program {
    /// Starts the server `program` on a repository. `arguments` are added to those for the repository and the ports.
    /// The system chooses the ports.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &Path, repository: &Path, arguments: &[&str]) -> io::Result<Self> {
        Self::start_with(command(program), repository, arguments)
    }

    /// As [`Program::start`], but with a command of [`command`] whose environment is prepared.
    ///
    /// # Errors
    /// As for [`Program::start`].
    pub fn start_with(mut command: Command, repository: &Path, arguments: &[&str]) -> io::Result<Self> {
        command
            .arg(format!("--model-repository={}", repository.display()))
            .args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"])
            .args(["--http-port=0", "--grpc-port=0", "--metrics-port=0"])
            .args(arguments);
        Self::start_line(command)
    }

    /// As [`Program::start`], but with a command of [`command`] that has all its arguments.
    ///
    /// # Errors
    /// As for [`Program::start`].
    pub fn start_line(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = TestProcess::start(&mut command)?;
        let none = || io::Error::other("the program has no output");
        let (output, errors) = (child.stdout.take().ok_or_else(none)?, child.stderr.take().ok_or_else(none)?);
        let (log, complaints) = (Arc::new(Log::default()), Arc::new(Log::default()));
        let reading = thread::spawn({
            let log = log.clone();
            move || log.read(BufReader::new(output))
        });
        let reading_errors = thread::spawn({
            let complaints = complaints.clone();
            move || complaints.read(BufReader::new(errors))
        });
        Ok(Self { child, log, complaints, readers: vec![reading, reading_errors] })
    }

    /// The address of a service, such as `HTTPService`. Waits until the log contains it.
    ///
    /// # Panics
    /// The log ends without it, or it takes too long.
    pub fn address_of(&self, service: &str) -> SocketAddr {
        let announcement = format!("Started {service} at ");
        let address = self.log.wait_for(|line| {
            let (_, address) = line.split_once(&announcement)?;
            address.trim().trim_matches('"').parse().ok()
        });
        address.unwrap_or_else(|| panic!("{service} is not started:\n{}\n{}", self.log(), self.complaints()))
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lines.lock().0.join("\n")
    }

    /// The lines on stderr so far: warnings and errors.
    pub fn complaints(&self) -> String {
        self.complaints.lines.lock().0.join("\n")
    }

    /// Waits until the log has a line with these words.
    ///
    /// # Panics
    /// The log ends without it, or it takes too long.
    pub fn wait_for(&self, words: &str) {
        let found = self.log.wait_for(|line| line.contains(words).then_some(()));
        assert!(found.is_some(), "'{words}' is not logged:\n{}\n{}", self.log(), self.complaints());
    }

    /// Waits until a warning or an error has a line with these words.
    ///
    /// # Panics
    /// The program ends without it, or it takes too long.
    pub fn wait_for_complaint(&self, words: &str) {
        let found = self.complaints.wait_for(|line| line.contains(words).then_some(()));
        assert!(found.is_some(), "'{words}' is not said:\n{}\n{}", self.log(), self.complaints());
    }

    /// The name of the process, as `ps` shows it.
    ///
    /// # Errors
    /// The program has ended.
    pub fn name(&self) -> io::Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/comm", self.child.id()))?.trim_end().to_owned())
    }

    /// The resident memory of the program, in bytes.
    ///
    /// # Errors
    /// The program has ended, or the kernel does not report it.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        self.bytes_of("VmRSS:")
    }

    /// The most memory that it has had resident so far.
    ///
    /// # Errors
    /// The program has ended.
    pub fn peak_resident_bytes(&self) -> io::Result<u64> {
        self.bytes_of("VmHWM:")
    }

    fn bytes_of(&self, field: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| io::Error::other(format!("no {field}")))
    }

    /// The number of files and sockets that the program has open.
    ///
    /// # Errors
    /// The program has ended.
    pub fn open_files(&self) -> io::Result<u64> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count() as u64)
    }

    /// Limits the number of open files and sockets of the program, as if the system had no more.
    ///
    /// # Errors
    /// The program has ended, or the system does not permit it.
    pub fn limit_open_files(&self, limit: u64) -> io::Result<()> {
        // The hard limit stays the one that the program has inherited.
        let limit = Rlimit { current: Some(limit), ..getrlimit(Resource::Nofile) };
        Ok(prlimit(self.id(), Resource::Nofile, limit).map(drop)?)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.id().ok_or_else(|| io::Error::other("the program has no id"))?, signal)?)
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// The program cannot be waited for.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        for reader in self.readers.drain(..) {
            // The reader has read all lines when it ends.
            let _ = reader.join();
        }
        Ok(status)
    }

    /// Ends the program as operators do, and waits.
    ///
    /// # Errors
    /// As for [`Program::signal`] and [`Program::wait`].
    pub fn terminate(self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait()
    }
}

impl Log {
    fn read(&self, output: impl BufRead) {
        for line in output.lines().map_while(Result::ok) {
            self.lines.lock().0.push(line);
            self.grown.notify_all();
        }
        self.lines.lock().1 = End::Closed;
        self.grown.notify_all();
    }

    /// The result of `wanted` for the first line in which it finds something.
    fn wait_for<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + TIMEOUT;
        let mut lines = self.lines.lock();
        loop {
            if let Some(found) = lines.0.iter().find_map(|line| wanted(line)) {
                return Some(found);
            }
            if lines.1 == End::Closed || self.grown.wait_until(&mut lines, deadline).timed_out() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_searched_as_it_grows_and_to_its_end() {
        let log = Log::default();
        log.read(&b"first\nStarted HTTPService at 1.2.3.4:5\n"[..]);
        assert_eq!(log.wait_for(|line| line.strip_prefix("Started ").map(str::len)), Some(24));
        assert_eq!(log.wait_for(|line| line.strip_prefix("Stopped ").map(str::len)), None);
    }
}
