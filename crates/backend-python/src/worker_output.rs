//! What a worker prints: each line becomes a record of the log, with the model, its version and its instance.
//!
//! A thread reads, so that a model that prints much never waits for the thread of its supervisor.
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use log::Level;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, ioctl_fionbio, read},
};
use vocabulary::Name;

use crate::wakeup_fd::WakeupFd;

/// A line that is longer becomes several records.
const MOST_LINE_BYTES: usize = 8 << 10;

/// The bytes of one read.
const READ_BYTES: usize = 8 << 10;

/// At the end, so many reads of a stream that a process holds which has escaped.
const LAST_READS: usize = 64;

/// The stack of the thread.
const STACK_BYTES: usize = 256 << 10;

/// The pipes of a process.
#[derive(Debug)]
pub(crate) struct OutputPipes {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Who prints.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    pub(crate) model: Name,
    pub(crate) version: i64,
    pub(crate) instance: String,
}

/// The thread that reads what a process prints. Dropping it reads what is there, and ends the thread.
#[derive(Debug)]
pub(crate) struct WorkerOutput {
    /// Rings when the thread should end.
    stop: Arc<WakeupFd>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerOutput {
    /// Begins to read.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn read(pipes: OutputPipes, printer: Printer) -> io::Result<Self> {
        let stop = Arc::new(WakeupFd::new()?);
        let streams =
            [PrintedStream::new(pipes.stdout, Level::Info)?, PrintedStream::new(pipes.stderr, Level::Warn)?];
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("python-output".into())
            .stack_size(STACK_BYTES)
            .spawn(move || read_all(streams, &stopped, &printer))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for WorkerOutput {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A pipe, and the line that is not complete.
struct PrintedStream {
    pipe: Option<OwnedFd>,
    level: Level,
    lines: LineSplitter,
}

impl PrintedStream {
    fn new(pipe: OwnedFd, level: Level) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), level, lines: LineSplitter::default() })
    }

    /// Reads once. Returns whether more may be there.
    fn read(&mut self, printer: &Printer) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut bytes = [0; READ_BYTES];
        match read(pipe, &mut bytes) {
            Ok(count) if count > 0 => {
                self.lines.push(&bytes[..count], |line| printer.log(self.level, line));
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }
}

fn read_all(mut streams: [PrintedStream; 2], stop: &WakeupFd, printer: &Printer) {
    while streams.iter().any(|stream| stream.pipe.is_some()) {
        let pipes = streams.iter().filter_map(|stream| stream.pipe.as_ref().map(AsFd::as_fd));
        let mut polled: Vec<_> = std::iter::once(stop.descriptor())
            .chain(pipes)
            .map(|each| PollFd::from_borrowed_fd(each, PollFlags::IN))
            .collect();
        // An interrupted wait has no news.
        let _ = poll(&mut polled, None);
        let is_stopped = polled[0].revents().contains(PollFlags::IN);
        drop(polled);
        for stream in &mut streams {
            let most = if is_stopped { LAST_READS } else { 1 };
            let _ = (0..most).all(|_| stream.read(printer));
        }
        if is_stopped {
            break;
        }
    }
    for stream in streams {
        stream.lines.finish(|line| printer.log(stream.level, line));
    }
}

impl Printer {
    fn log(&self, level: Level, line: &str) {
        let Self { model, version, instance } = self;
        log::log!(level, model:%, version, instance:%; "{line}");
    }
}

/// Splits bytes into lines as a terminal shows them: what follows a carriage return replaces what is before it, so that of
/// a progress bar the last state is left. Lines without anything are left out.
#[derive(Debug, Default)]
struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    fn push(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() >= MOST_LINE_BYTES {
                Self::tell(&std::mem::take(&mut self.rest), &mut tell);
            }
        }
        let last = self.rest.len().saturating_sub(1);
        if let Some(shown) = self.rest[..last].iter().rposition(|byte| *byte == b'\r') {
            self.rest.drain(..=shown);
        }
    }

    fn finish(self, mut tell: impl FnMut(&str)) {
        Self::tell(&self.rest, &mut tell);
    }

    fn tell(line: &[u8], tell: &mut impl FnMut(&str)) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        let shown = line.rsplit('\r').next().unwrap_or_default();
        if !shown.is_empty() {
            tell(shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&str]) -> Vec<String> {
        let (mut splitter, mut told) = (LineSplitter::default(), Vec::new());
        for part in parts {
            splitter.push(part.as_bytes(), |line| told.push(line.to_owned()));
        }
        splitter.finish(|line| told.push(line.to_owned()));
        told
    }

    #[test]
    fn a_line_is_told_once_it_is_complete_and_the_last_one_at_the_end() {
        assert_eq!(lines(&["a", "b\nc\n\n  \nd", "e"]), ["ab", "c", "de"]);
        assert_eq!(lines(&["x\r\n", "y\r", "\n"]), ["x", "y"]);
        assert!(lines(&["", "\n\r\n"]).is_empty());
    }

    #[test]
    fn of_a_progress_bar_the_last_state_is_left() {
        assert_eq!(lines(&["\r 10 %", "\r 50 %", "\r100 %", "\n", "done\n"]), ["100 %", "done"]);
        assert_eq!(lines(&["\r10 %\r20 %"]), ["20 %"]);
    }

    #[test]
    fn a_line_without_an_end_has_a_limit() {
        let long = "x".repeat(3 * MOST_LINE_BYTES);
        let told = lines(&[&long[..MOST_LINE_BYTES], &long[MOST_LINE_BYTES..]]);
        assert_eq!(told.concat(), long);
        assert!(told.len() > 1);
        let mut splitter = LineSplitter::default();
        for _ in 0..100 {
            splitter.push(b"0123456789\r", |_| {});
        }
        assert!(splitter.rest.len() < 20);
    }
}
