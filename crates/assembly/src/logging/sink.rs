//! The destination of log lines.
//!
//! Lines for regular files are written by the thread that logs them. Lines for everything else pass a [`LineQueue`].
//! Lines that are lost are told on stderr.

use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use inference::lock::{LockRank, Mutex};
use line_writer::{LineAccount, LineOutput, LineWriter};
use log::Level;
use vocabulary::log_target;

use super::destination::Destination;
use super::losses::{file_account, stream_account};
use super::queue::LineQueue;
use crate::colors::{BOLD_RED, DIM, PLAIN, YELLOW};

#[derive(Debug)]
pub(super) enum LogSink {
    /// stdout for information and verbose lines, stderr for warnings and errors.
    Streams,
    /// A file, appended to.
    File(FileLines<File>),
    /// A pipe or another file that is not regular.
    Queue(LineQueue),
}

/// The lines for a regular file. The thread that logs writes them.
#[derive(Debug)]
pub(super) struct FileLines<O>(Mutex<(LineWriter<O>, LineAccount)>);

impl<O: LineOutput> FileLines<O> {
    fn new(output: O, account: LineAccount) -> Self {
        Self(Mutex::ranked(LockRank::Log, (LineWriter::new(output), account)))
    }

    /// Writes a whole line. Returns what must be told about lost lines.
    #[must_use]
    fn write(&self, line: &[u8]) -> Option<String> {
        let (writer, account) = &mut *self.0.lock();
        if writer.write(line, 1, account) {
            return None;
        }
        account.due_report(Instant::now())
    }
}

/// One of the standard streams.
#[derive(Debug, Clone)]
enum StandardStream {
    Regular(Arc<FileLines<Destination>>),
    Queue(Arc<LineQueue>),
}

impl StandardStream {
    fn write(&self, line: &[u8]) {
        match self {
            Self::Regular(lines) => {
                if let Some(report) = lines.write(line) {
                    log::error!(target: log_target::STDERR, "{report}");
                }
            }
            Self::Queue(queue) => queue.write(line),
        }
    }
}

/// The standard streams of the process. If both are one pipe or terminal, they have one queue, which keeps the order.
#[derive(Debug)]
struct StandardStreams {
    stdout: StandardStream,
    stderr: StandardStream,
}

/// What they are when the first line is logged.
static STREAMS: OnceLock<StandardStreams> = OnceLock::new();

/// Whether lines on stdout and on stderr have colours.
static COLORED: OnceLock<(bool, bool)> = OnceLock::new();

/// Gives the heads of log lines on stdout or stderr the colours of their levels. The first call counts. Log files have
/// no colours.
pub fn color_streams(stdout: bool, stderr: bool) {
    // A second call changes nothing.
    let _ = COLORED.set((stdout, stderr));
}

/// The line with a colour for its head, which ends with `] `. Lines of JSON have no such head.
fn with_color(level: Level, line: &[u8], is_colored: bool) -> Cow<'_, [u8]> {
    if !is_colored || line.starts_with(b"{") {
        return Cow::Borrowed(line);
    }
    let Some(head) = line.windows(2).position(|end| end == b"] ") else { return Cow::Borrowed(line) };
    let color = match level {
        Level::Error => BOLD_RED,
        Level::Warn => YELLOW,
        Level::Info | Level::Debug | Level::Trace => DIM,
    };
    let (head, message) = line.split_at(head + 1);
    Cow::Owned([color.as_bytes(), head, PLAIN.as_bytes(), message].concat())
}

impl LogSink {
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata().is_ok_and(|file| !file.is_file()) {
            return Ok(Self::Queue(LineQueue::new(Destination::File(file), file_account(path))));
        }
        Ok(Self::File(FileLines::new(file, file_account(path))))
    }

    /// Writes a whole line, which ends with a newline. Returns what must be told about lost lines.
    #[must_use]
    pub(super) fn write(&self, level: Level, line: &[u8]) -> Option<String> {
        match self {
            Self::File(lines) => return lines.write(line),
            Self::Queue(queue) => queue.write(line),
            Self::Streams if level <= Level::Warn => {
                let (_, is_colored) = COLORED.get().copied().unwrap_or_default();
                to_stderr(&with_color(level, line, is_colored));
            }
            Self::Streams => {
                let (is_colored, _) = COLORED.get().copied().unwrap_or_default();
                to_stdout(&with_color(level, line, is_colored));
            }
        }
        None
    }

    /// Waits until the lines so far are written, but not beyond `deadline`.
    pub(super) fn flush(&self, deadline: Instant) {
        if let Self::Queue(queue) = self {
            queue.flush(deadline);
        }
    }
}

/// Writes a whole line to stdout, in the order of the log, and does not wait for its reader.
pub fn to_stdout(line: &[u8]) {
    streams().stdout.write(line);
}

/// The same for stderr.
pub fn to_stderr(line: &[u8]) {
    streams().stderr.write(line);
}

/// stdout for a thread that may wait for its reader.
#[derive(Debug)]
pub struct WaitingStdout;

impl Write for WaitingStdout {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &streams().stdout {
            StandardStream::Regular(_) => Destination::Stdout.write(lines),
            // The queue counts and tells what is lost afterwards.
            StandardStream::Queue(queue) => {
                queue.write_waiting(lines);
                Ok(lines.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineOutput for WaitingStdout {
    fn length(&self) -> Option<u64> {
        None
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Waits until what was written to stdout and stderr so far has left, for that time at most.
pub fn flush_streams(most: Duration) {
    let deadline = Instant::now() + most;
    let Some(StandardStreams { stdout, stderr }) = STREAMS.get() else { return };
    for stream in [stdout, stderr] {
        if let StandardStream::Queue(queue) = stream {
            queue.flush(deadline);
        }
    }
}

fn streams() -> &'static StandardStreams {
    STREAMS.get_or_init(|| {
        let files = [rustix::stdio::stdout(), rustix::stdio::stderr()].map(metadata);
        let is_same = matches!(&files, [Some(one), Some(other)]
            if (one.dev(), one.ino(), one.rdev()) == (other.dev(), other.ino(), other.rdev()));
        let [is_regular, is_regular_error] = files.map(|file| file.is_some_and(|file| file.is_file()));
        let stream = |destination, is_regular, account| match is_regular {
            true => StandardStream::Regular(Arc::new(FileLines::new(destination, account))),
            false => StandardStream::Queue(Arc::new(LineQueue::new(destination, account))),
        };
        let stdout = stream(Destination::Stdout, is_regular, stream_account("stdout"));
        let stderr = match is_same {
            true => stdout.clone(),
            false => stream(Destination::Stderr, is_regular_error, stream_account("stderr")),
        };
        StandardStreams { stdout, stderr }
    })
}

/// `None` if the stream is closed.
fn metadata(stream: BorrowedFd<'_>) -> Option<Metadata> {
    File::from(stream.try_clone_to_owned().ok()?).metadata().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_line_has_the_colour_of_its_level() {
        let colored = |level, line: &str, is_colored| {
            String::from_utf8(with_color(level, line.as_bytes(), is_colored).into_owned()).unwrap()
        };
        let line = "W1126 x.rs:1] \"a] b\"\n";
        assert_eq!(colored(Level::Warn, line, true), "\x1b[33mW1126 x.rs:1]\x1b[0m \"a] b\"\n");
        assert!(colored(Level::Error, line, true).starts_with("\x1b[1;31m"));
        assert_eq!(colored(Level::Warn, line, false), line);
        let json = "{\"message\":\"[1] 2\"}\n";
        assert_eq!(colored(Level::Info, json, true), json);
    }
}
