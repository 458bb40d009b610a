//! A function of the program that takes the records of the log, in place of a file, stdout and stderr.
//!
//! Records of the server wait for a thread that calls the function. So no thread of the server waits for the program, which
//! may hold a lock of its own while it waits for the server: a program in Python holds Python's lock.
use std::{
    cell::Cell,
    collections::VecDeque,
    fmt::{self, Formatter},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Instant, SystemTime},
};

use inference::lock::{Condvar, LockRank, Mutex};
use log::{Level, Record};
use vocabulary::log_target::PLUGIN;

use super::text::{place, with_fields};

/// The most bytes of records that wait. A record for which there is no room goes to the file, stdout or stderr.
const MOST_BYTES: usize = 4 << 20;

/// A record as the program gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRecord {
    /// Its level.
    pub level: Level,
    /// The file of its source, without the directory.
    pub file: String,
    /// The line of its source.
    pub line: u32,
    /// When it was logged.
    pub time: SystemTime,
    /// Its message, with its fields.
    pub message: String,
}

/// The function of the program. Any thread calls it.
pub type LogCallback = Box<dyn Fn(&LoggedRecord) + Send + Sync>;

/// A callback, and the records that wait for it.
pub(super) struct LogCallbackQueue {
    callback: LogCallback,
    waiting: Mutex<WaitingRecords>,
    /// Nothing waits any more, and the thread ends.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct WaitingRecords {
    records: VecDeque<LoggedRecord>,
    /// The bytes of `records`.
    bytes: usize,
    /// A thread calls the function until nothing waits.
    has_thread: bool,
    /// The last such thread. It may have ended.
    thread: Option<JoinHandle<()>>,
}

thread_local! {
    /// Whether this thread is in a callback.
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

impl LogCallbackQueue {
    pub(super) fn new(callback: LogCallback) -> Arc<Self> {
        let waiting = Mutex::ranked(LockRank::Log, WaitingRecords::default());
        Arc::new(Self { callback, waiting, emptied: Condvar::new() })
    }

    /// Takes a record: calls the function if the program or a plug-in has logged the record, or lets the record wait.
    /// Returns false if the callback itself has logged the record, and if too many records wait.
    pub(super) fn take(self: &Arc<Self>, record: &Record<'_>, time: SystemTime) -> bool {
        if IS_CALLING.get() {
            return false;
        }
        let logged = LoggedRecord::new(record, time);
        if record.target() == PLUGIN {
            self.call(&logged);
            return true;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(&logged) {
            return false;
        }
        if !waiting.has_thread {
            let queue = self.clone();
            let Ok(thread) = thread::Builder::new().name("log".to_owned()).spawn(move || queue.call_all())
            else {
                return false;
            };
            waiting.has_thread = true;
            waiting.thread = Some(thread);
        }
        waiting.push(logged);
        true
    }

    /// Forgets the records that wait. The function may still be in a call when this returns.
    pub(super) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Waits until the function has got all records and the thread has ended, but not beyond `deadline`.
    pub(super) fn flush(&self, deadline: Instant) {
        let mut waiting = self.waiting.lock();
        while waiting.has_thread {
            if IS_CALLING.get() || self.emptied.wait_until(&mut waiting, deadline).timed_out() {
                return;
            }
        }
        let ended = waiting.thread.take();
        drop(waiting);
        // It has left its loop. A program may unload this library afterwards.
        let _ = ended.map(JoinHandle::join);
    }

    fn call_all(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let Some(record) = waiting.pop() else {
                waiting.has_thread = false;
                self.emptied.notify_all();
                return;
            };
            drop(waiting);
            self.call(&record);
        }
    }

    fn call(&self, record: &LoggedRecord) {
        IS_CALLING.set(true);
        (self.callback)(record);
        IS_CALLING.set(false);
    }
}

impl WaitingRecords {
    fn has_room(&self, record: &LoggedRecord) -> bool {
        self.bytes + record.bytes() <= MOST_BYTES
    }

    fn push(&mut self, record: LoggedRecord) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    fn pop(&mut self) -> Option<LoggedRecord> {
        let record = self.records.pop_front()?;
        self.bytes -= record.bytes();
        Some(record)
    }

    fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }
}

impl fmt::Debug for LogCallbackQueue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogCallbackQueue").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl LoggedRecord {
    fn new(record: &Record<'_>, time: SystemTime) -> Self {
        let (file, line) = place(record);
        let text = record.args().to_string();
        let message = with_fields(text.trim_start_matches('\n'), record);
        Self { level: record.level(), file: file.to_owned(), line, time, message }
    }

    /// The bytes that the record takes while it waits.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.file.len() + self.message.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_waits_for_a_program_that_does_not_return_is_bounded_in_bytes() {
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let (got, all_got) = mpsc::channel();
        let ends = Mutex::new(ends);
        let queue = LogCallbackQueue::new(Box::new(move |record| {
            begun.send(()).unwrap();
            // Returns at once when the sender has gone.
            let _ = ends.lock().recv();
            got.send(record.message.len()).unwrap();
        }));
        let long = "x".repeat(1 << 20);
        let take =
            || queue.take(&Record::builder().args(format_args!("{long}")).build(), SystemTime::UNIX_EPOCH);
        assert!(take());
        has_begun.recv().unwrap();
        // The first is with the program. Three wait: with what belongs to each record, four are more than 4 MiB.
        let taken = [take(), take(), take(), take(), take()];
        assert_eq!(taken, [true, true, true, false, false]);
        queue.clear();
        let taken = [take(), take(), take(), take()];
        assert_eq!(taken, [true, true, true, false]);
        drop(end);
        let lengths: Vec<_> = (0..4).map(|_| all_got.recv().unwrap()).collect();
        assert_eq!(lengths, [1 << 20; 4]);
    }
}
