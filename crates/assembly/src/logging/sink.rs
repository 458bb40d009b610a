//! The destination of log lines.
//!
//! Lines for regular files are written by the thread that logs them. Lines for everything else pass a [`LineQueue`].

use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use log::Level;

use super::queue::{Destination, LineQueue};

#[derive(Debug)]
pub(super) enum LogSink {
    /// stdout for information and verbose lines, stderr for warnings and errors.
    Streams,
    /// A file, appended to.
    File(File),
    /// A pipe or another file that is not regular.
    Queue(LineQueue),
}

/// One of the standard streams.
#[derive(Debug, Clone)]
enum StandardStream {
    Regular,
    Queue(Arc<LineQueue>),
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
        Level::Error => "\x1b[1;31m",
        Level::Warn => "\x1b[33m",
        Level::Info | Level::Debug | Level::Trace => "\x1b[2m",
    };
    let (head, message) = line.split_at(head + 1);
    Cow::Owned([color.as_bytes(), head, b"\x1b[0m", message].concat())
}

impl LogSink {
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata().is_ok_and(|file| !file.is_file()) {
            return Ok(Self::Queue(LineQueue::new(Destination::File(file))));
        }
        Ok(Self::File(file))
    }

    /// Writes a whole line, which ends with a newline. A line that cannot be written is lost: an error has no other
    /// place to go.
    pub(super) fn write(&self, level: Level, line: &[u8]) {
        match self {
            Self::File(file) => _ = (&*file).write_all(line),
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
    match &streams().stdout {
        // The buffer of the standard library writes a text that ends with a newline at once, with one system call.
        StandardStream::Regular => _ = io::stdout().lock().write_all(line),
        StandardStream::Queue(queue) => queue.write(line),
    }
}

/// The same for stderr.
pub fn to_stderr(line: &[u8]) {
    match &streams().stderr {
        StandardStream::Regular => _ = io::stderr().lock().write_all(line),
        StandardStream::Queue(queue) => queue.write(line),
    }
}

/// stdout for a thread that may wait for its reader.
#[derive(Debug)]
pub struct WaitingStdout;

impl Write for WaitingStdout {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &streams().stdout {
            StandardStream::Regular => return io::stdout().write(lines),
            StandardStream::Queue(queue) => queue.write_waiting(lines),
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &streams().stdout {
            StandardStream::Regular => io::stdout().flush(),
            StandardStream::Queue(_) => Ok(()),
        }
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
        let [stdout, stderr] = [Destination::Stdout, Destination::Stderr]
            .map(|destination| StandardStream::Queue(Arc::new(LineQueue::new(destination))));
        let [is_regular, is_regular_error] = files.map(|file| file.is_some_and(|file| file.is_file()));
        let stdout = if is_regular { StandardStream::Regular } else { stdout };
        let stderr = match is_regular_error {
            true => StandardStream::Regular,
            false if is_same => stdout.clone(),
            false => stderr,
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
