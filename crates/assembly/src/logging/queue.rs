//! Lines for a destination that may block: a pipe, a terminal or a socket that nobody reads.
//!
//! A line is written at once if the destination takes it at once. Otherwise it waits in a queue with a bound, which a
//! thread writes. A line for which the queue has no room is dropped: a log must not hold up requests, nor the stop of the
//! server. After the first dropped line the queue takes no other until it is empty. Then one line tells how many were
//! dropped, in their place.
use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::AsFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use inference::lock::{Condvar, LockRank, Mutex, MutexGuard};
use line_writer::{LineAccount, LineCounts, LineWriter};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use vocabulary::log_target;

use super::destination::Destination;

/// The most bytes that wait.
const MOST_BYTES: usize = 1 << 20;

/// The lines for one destination. When it is dropped, what waits is still written.
#[derive(Debug)]
pub(super) struct LineQueue(Arc<QueueState>);

#[derive(Debug)]
struct QueueState {
    counts: Arc<LineCounts>,
    waiting: Mutex<WaitingLines>,
    /// Lines wait, or the thread shall end.
    grown: Condvar,
    /// Lines were written, or the thread ends.
    shrunk: Condvar,
}

#[derive(Debug)]
struct WaitingLines {
    /// `None` while the thread writes.
    output: Option<(LineWriter<Destination>, LineAccount)>,
    /// The level of a line about the lines for the destination, so that it goes there, too.
    level: log::Level,
    lines: VecDeque<Box<[u8]>>,
    /// The bytes of `lines`, and of the line that the thread writes.
    bytes: usize,
    /// Lines that were dropped since the queue was empty.
    dropped: u64,
    /// The destination can say whether it takes bytes at once.
    takes_at_once: bool,
    /// The thread writes, or waits for lines.
    has_thread: bool,
    /// Set when the thread starts. It may have ended.
    thread: Option<JoinHandle<()>>,
    /// The thread ends when nothing waits.
    is_ending: bool,
}

impl LineQueue {
    pub(super) fn new(destination: Destination, account: LineAccount) -> Self {
        let counts = account.counts().clone();
        let waiting = WaitingLines {
            level: destination.level(),
            output: Some((LineWriter::new(destination), account)),
            lines: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            takes_at_once: true,
            has_thread: false,
            thread: None,
            is_ending: false,
        };
        let (grown, shrunk) = (Condvar::new(), Condvar::new());
        Self(Arc::new(QueueState { counts, waiting: Mutex::ranked(LockRank::Log, waiting), grown, shrunk }))
    }

    /// Writes a whole line, or lets it wait, or drops it. Never blocks.
    pub(super) fn write(&self, line: &[u8]) {
        let mut waiting = self.0.waiting.lock();
        let rest = self.0.write_at_once(&mut waiting, line);
        if rest.is_empty() {
            return;
        }
        if waiting.has_room(rest.len()) {
            self.push(waiting, rest);
        } else {
            waiting.dropped += 1;
            self.0.counts.add_lost(1);
        }
    }

    /// Writes a whole line, when there is room for it. Blocks until then.
    pub(super) fn write_waiting(&self, line: &[u8]) {
        let mut waiting = self.0.waiting.lock();
        let rest = self.0.write_at_once(&mut waiting, line);
        while !rest.is_empty() && !waiting.has_room(rest.len()) {
            self.0.shrunk.wait(&mut waiting);
        }
        if !rest.is_empty() {
            self.push(waiting, rest);
        }
    }

    /// Waits until everything is written and the thread has ended, but not beyond `deadline`. The next line that must wait
    /// starts another thread.
    pub(super) fn flush(&self, deadline: Instant) {
        let mut waiting = self.0.waiting.lock();
        waiting.is_ending = true;
        self.0.grown.notify_one();
        while waiting.has_thread {
            if self.0.shrunk.wait_until(&mut waiting, deadline).timed_out() {
                waiting.is_ending = false;
                return;
            }
        }
        waiting.is_ending = false;
        let ended = waiting.thread.take();
        drop(waiting);
        // It has left its loop. A program may unload this library afterwards.
        let _ = ended.map(JoinHandle::join);
    }

    fn push(&self, mut waiting: MutexGuard<'_, WaitingLines>, line: &[u8]) {
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        if !waiting.has_thread {
            let state = self.0.clone();
            // Without a thread, lines wait and are dropped. There is no place that could be told.
            let thread = thread::Builder::new().name("log".to_owned()).spawn(move || state.write_all());
            waiting.has_thread = thread.is_ok();
            waiting.thread = thread.ok();
        }
        drop(waiting);
        self.0.grown.notify_one();
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.0.waiting.lock().is_ending = true;
        self.0.grown.notify_one();
    }
}

impl WaitingLines {
    /// Nothing waits for the thread, and nothing remains to be told.
    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.dropped == 0
    }

    /// A line that is longer than the queue is taken alone.
    fn has_room(&self, len: usize) -> bool {
        self.dropped == 0 && (self.bytes == 0 || self.bytes + len <= MOST_BYTES)
    }
}

impl QueueState {
    /// Writes as much as the destination takes at once, if nothing waits before it. Returns the rest.
    fn write_at_once<'l>(&self, waiting: &mut WaitingLines, line: &'l [u8]) -> &'l [u8] {
        let is_next = waiting.is_empty() && waiting.takes_at_once;
        let Some((writer, _)) = waiting.output.as_ref().filter(|_| is_next) else { return line };
        // The position -1 is that of the stream.
        let fd = writer.output().as_fd();
        match pwritev2(fd, &[IoSlice::new(line)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(count) if count < line.len() => &line[count..],
            Ok(_) => {
                self.counts.add_written(1);
                &[]
            }
            Err(Errno::AGAIN | Errno::INTR) => line,
            // Terminals cannot say it. Another error comes again when the thread writes.
            Err(_) => {
                waiting.takes_at_once = false;
                line
            }
        }
    }

    /// Writes what comes, until it shall end.
    fn write_all(&self) {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                let output = waiting.output.take().expect("only this thread takes it");
                let output = MutexGuard::unlocked(&mut waiting, || write(output, &line));
                waiting.output = Some(output);
                waiting.bytes -= line.len();
                self.shrunk.notify_all();
            } else if waiting.dropped > 0 {
                let dropped = std::mem::take(&mut waiting.dropped);
                let level = waiting.level;
                MutexGuard::unlocked(&mut waiting, || {
                    log::log!(
                        level,
                        "{dropped} lines of the log were dropped, because nobody read them in time"
                    );
                });
                self.shrunk.notify_all();
            } else if waiting.is_ending {
                waiting.has_thread = false;
                self.shrunk.notify_all();
                return;
            } else {
                self.grown.wait(&mut waiting);
            }
        }
    }
}

/// Writes a line. If it is lost, says so on stderr. Returns the output.
fn write(
    (mut writer, mut account): (LineWriter<Destination>, LineAccount),
    line: &[u8],
) -> (LineWriter<Destination>, LineAccount) {
    if !writer.write(line, 1, &mut account)
        && let Some(report) = account.due_report(Instant::now())
    {
        log::error!(target: log_target::STDERR, "{report}");
    }
    (writer, account)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{PipeReader, Read, pipe},
    };

    use testing::eventually;

    use super::*;

    fn queue() -> (LineQueue, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        (LineQueue::new(Destination::File(file), account()), reader)
    }

    fn account() -> LineAccount {
        LineAccount::new("lines of a test", Arc::default())
    }

    #[test]
    fn a_line_is_in_the_pipe_when_it_is_logged() {
        let (queue, mut reader) = queue();
        queue.write(b"one\n");
        queue.write(b"two\n");
        {
            // An old kernel cannot say for a pipe whether it takes bytes at once.
            let waiting = queue.0.waiting.lock();
            assert_ne!(waiting.has_thread, waiting.takes_at_once);
        }
        drop(queue);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn beyond_the_pipe_lines_wait_in_order_and_beyond_the_queue_they_are_dropped() {
        let (queue, mut reader) = queue();
        let mut written = 0_usize;
        while queue.0.waiting.lock().dropped == 0 {
            queue.write(format!("{written:>99}\n").as_bytes());
            written += 1;
        }
        queue.write(b"no room\n");
        assert_eq!((queue.0.waiting.lock().dropped, queue.0.counts.lost()), (2, 2));
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        eventually("an empty queue", || queue.0.waiting.lock().is_empty());
        queue.write(b"room again\n");
        queue.flush(Instant::now() + testing::http::TIMEOUT);
        drop(queue);
        let text = reading.join().unwrap();
        let (numbers, last) = text.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(last, "room again");
        assert!(numbers.lines().map(|line| line.trim().parse::<usize>().unwrap()).eq(0..written - 1));
    }

    #[test]
    fn lines_that_the_destination_refuses_are_counted_as_lost() {
        let full = std::fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
        let queue = LineQueue::new(Destination::File(full), account());
        (0..3).for_each(|_| queue.write(b"lost\n"));
        queue.flush(Instant::now() + testing::http::TIMEOUT);
        assert_eq!((queue.0.counts.written(), queue.0.counts.lost()), (0, 3));
    }

    #[test]
    fn a_flush_ends_although_nobody_reads() {
        let (queue, _reader) = queue();
        queue.write(&vec![b'x'; 2 * MOST_BYTES]);
        assert!(!queue.0.waiting.lock().is_empty(), "one long line is taken");
        queue.flush(Instant::now());
        assert!(!queue.0.waiting.lock().is_empty());
    }

    #[test]
    fn a_flush_ends_the_thread_and_the_next_line_that_waits_starts_another() {
        let (queue, mut reader) = queue();
        let line = vec![b'x'; MOST_BYTES];
        for _ in 0..2 {
            queue.write(&line);
            assert!(queue.0.waiting.lock().has_thread);
            let reading = thread::spawn(move || {
                reader.read_exact(&mut vec![0; MOST_BYTES]).unwrap();
                reader
            });
            queue.flush(Instant::now() + testing::http::TIMEOUT);
            assert!(!queue.0.waiting.lock().has_thread);
            reader = reading.join().unwrap();
        }
    }
}
