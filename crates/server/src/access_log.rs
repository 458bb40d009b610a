//! Writes the access log: a JSON object in a line for each sampled request.
//!
//! A thread of its own writes. Threads of the network only hand it entries through a bounded queue. If the queue is
//! full, because the disk or the reader of a pipe is slow, an entry is dropped and counted: a log must not delay
//! requests. A line counts as written when the file has it.
use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use assembly::logging::{WaitingStdout, timestamp};
use frontend::access::{AccessEntry, AccessLog};
use inference::{
    MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricsText},
};
use line_writer::{LineAccount, LineCounts, LineOutput, LineWriter};
use vocabulary::{Error, log_target};

use crate::options::AccessLogSettings;

/// The most entries that wait for the thread. At most about a megabyte.
const WAITING: usize = 4096;

/// How long the exit of the server waits for the thread to write what it has.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The access log of a server.
#[derive(Debug)]
pub struct AccessLogWriter {
    /// Which part of the requests gets an entry, from 0 to 1.
    rate: f64,
    /// The number of requests so far.
    candidates: AtomicU64,
    counts: Arc<LineCounts>,
    messages: SyncSender<WriterMessage>,
}

#[derive(Debug)]
enum WriterMessage {
    Entry(SystemTime, Box<AccessEntry>),
    /// Open the file again.
    Reopen,
    /// Tell when everything before this has been written.
    Flush(SyncSender<()>),
}

/// The destination of the lines, and what has become of them.
struct AccessLogOutput {
    /// `None` for stdout.
    path: Option<PathBuf>,
    lines: LineWriter<Box<dyn LineOutput + Send>>,
    account: LineAccount,
}

impl AccessLogWriter {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    /// INTERNAL: the file cannot be opened, or the system refuses to start a thread.
    pub fn start(settings: &AccessLogSettings) -> Result<Arc<Self>, Error> {
        let counts = Arc::<LineCounts>::default();
        let output = AccessLogOutput::start(settings.path.clone(), counts.clone())?;
        let (messages, received) = sync_channel(WAITING);
        let refused =
            |error| Error::internal(format!("failed to start the thread of the access log: {error}"));
        thread::Builder::new()
            .name("access log".to_owned())
            .spawn(move || write_all(&received, output))
            .map_err(refused)?;
        Ok(Arc::new(Self { rate: settings.rate, candidates: AtomicU64::new(0), counts, messages }))
    }

    /// Opens the file again, so that lines go to a new file after the old one was renamed.
    pub fn reopen(&self) {
        self.send_waiting(WriterMessage::Reopen);
    }

    /// Waits until what has been logged so far is written, for a second at most. Blocks.
    pub fn flush(&self) {
        self.flush_within(LAST_LINES);
    }

    fn flush_within(&self, limit: Duration) {
        let (tell, flushed) = sync_channel(1);
        self.send_waiting(WriterMessage::Flush(tell));
        // If it takes longer, the lines are lost.
        let _ = flushed.recv_timeout(limit);
    }

    /// Sends a message that is not lost if the queue is full: it then waits for room, on a thread of its own.
    fn send_waiting(&self, message: WriterMessage) {
        if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
            let messages = self.messages.clone();
            let send = move || {
                // The writer ends only after all senders.
                let _ = messages.send(message);
            };
            if let Err(error) = thread::Builder::new().name("access log".to_owned()).spawn(send) {
                log::error!("failed to start a thread for the access log: {error}");
            }
        }
    }
}

impl AccessLog for AccessLogWriter {
    fn samples(&self) -> bool {
        // The part of the first n requests is as close to the rate as whole requests can be.
        let candidates = self.candidates.fetch_add(1, Relaxed) as f64;
        ((candidates + 1.0) * self.rate).floor() > (candidates * self.rate).floor()
    }

    fn write(&self, entry: AccessEntry) {
        if self.messages.try_send(WriterMessage::Entry(SystemTime::now(), Box::new(entry))).is_err() {
            self.counts.add_lost(1);
        }
    }
}

impl MetricSource for AccessLogWriter {
    fn append_to(&self, text: &mut MetricsText) {
        let counters = [
            (
                "nereid_access_log_lines_total",
                "Number of lines of the access log that its file has",
                self.counts.written(),
            ),
            (
                "nereid_access_log_dropped_total",
                "Number of lines of the access log that its file lacks, because writing them took too long or failed",
                self.counts.lost(),
            ),
        ];
        for (name, help, count) in counters {
            MetricFamilyText::begin(text, name, MetricKind::Counter, help).sample("", count as f64);
        }
    }
}

fn write_all(messages: &Receiver<WriterMessage>, mut output: AccessLogOutput) {
    while let Some(message) = next(messages, &mut output) {
        match message {
            WriterMessage::Entry(at, entry) => output.write(&line(at, &entry)),
            WriterMessage::Reopen => output.reopen(),
            WriterMessage::Flush(tell) => {
                output.flush();
                output.tell_all();
                let _ = tell.send(());
            }
        }
    }
    output.flush();
    output.tell_all();
}

/// The next message. Before the thread waits for one, it writes what it has collected.
fn next(messages: &Receiver<WriterMessage>, output: &mut AccessLogOutput) -> Option<WriterMessage> {
    match messages.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            output.flush();
            messages.recv().ok()
        }
    }
}

impl AccessLogOutput {
    /// Opens the file at `path`, or stdout.
    fn start(path: Option<PathBuf>, counts: Arc<LineCounts>) -> Result<Self, Error> {
        let lines = Self::open(path.as_deref())?;
        let what = match &path {
            Some(path) => format!("lines of the access log '{}'", path.display()),
            None => "lines of the access log on stdout".to_owned(),
        };
        Ok(Self { path, lines, account: LineAccount::new(what, counts) })
    }

    fn open(path: Option<&Path>) -> Result<LineWriter<Box<dyn LineOutput + Send>>, Error> {
        let output: Box<dyn LineOutput + Send> = match path {
            Some(path) => Box::new(append_to(path)?),
            None => Box::new(WaitingStdout),
        };
        Ok(LineWriter::new(output))
    }

    /// Opens the file again. If that fails, lines still go to the old one.
    fn reopen(&mut self) {
        self.flush();
        match Self::open(self.path.as_deref()) {
            Ok(lines) => self.lines = lines,
            Err(error) => log::error!("the old access log stays open (SIGHUP): {error}"),
        }
    }

    fn write(&mut self, line: &[u8]) {
        self.lines.collect(line, 1, &mut self.account);
        tell(self.account.due_report(Instant::now()));
    }

    fn flush(&mut self) {
        self.lines.flush(&mut self.account);
        tell(self.account.due_report(Instant::now()));
    }

    fn tell_all(&mut self) {
        tell(self.account.last_report());
    }
}

fn tell(report: Option<String>) {
    if let Some(report) = report {
        log::error!(target: log_target::STDERR, "{report}");
    }
}

fn append_to(path: &Path) -> Result<File, Error> {
    let refused = |error| Error::internal(format!("failed to open access log '{}': {error}", path.display()));
    OpenOptions::new().create(true).append(true).open(path).map_err(refused)
}

/// The line of an entry, with its newline. Members without a value are left out.
fn line(at: SystemTime, entry: &AccessEntry) -> Vec<u8> {
    let mut members = serde_json::Map::new();
    let mut add = |name: &str, value: serde_json::Value| {
        if !value.is_null() && value != "" {
            members.insert(name.to_owned(), value);
        }
    };
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    add("timestamp", timestamp(at).into());
    add("protocol", entry.protocol.into());
    add("method", entry.method.as_str().into());
    add("model", entry.model.as_str().into());
    add("version", entry.version.map(|version| version.to_string()).into());
    add("request_id", entry.request_id.as_str().into());
    add("status", entry.status.into());
    add("cancelled", entry.status.is_none().then_some(true).into());
    add("request_bytes", entry.request_bytes.into());
    add("response_bytes", entry.response_bytes.into());
    add("queue_us", entry.times.queue.map(micros).into());
    add("compute_us", entry.times.compute().map(micros).into());
    add("total_us", micros(entry.total).into());
    add("peer", entry.peer.map(|peer| peer.to_string()).into());
    let mut line = serde_json::Value::Object(members).to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use frontend::access::RequestTimes;

    use super::*;

    fn entry() -> AccessEntry {
        AccessEntry {
            protocol: "http",
            method: "POST /v2/models/m/infer".to_owned(),
            model: "m".into(),
            version: Some(3),
            request_id: "a\"b".into(),
            status: Some(200),
            request_bytes: 7,
            response_bytes: 9,
            times: RequestTimes {
                queue: Some(Duration::from_micros(5)),
                compute_input: Some(Duration::from_micros(1)),
                compute_infer: Some(Duration::from_micros(2)),
                compute_output: Some(Duration::from_micros(3)),
            },
            total: Duration::from_millis(2),
            peer: Some("127.0.0.1:80".parse().unwrap()),
        }
    }

    fn log(path: PathBuf, rate: f64) -> Arc<AccessLogWriter> {
        AccessLogWriter::start(&AccessLogSettings { path: Some(path), rate }).unwrap()
    }

    /// A log whose thread has not started.
    fn unwritten(messages: SyncSender<WriterMessage>) -> AccessLogWriter {
        AccessLogWriter { rate: 1.0, candidates: AtomicU64::new(0), counts: Arc::default(), messages }
    }

    #[test]
    fn a_line_is_an_object_without_what_is_unknown() {
        let text = String::from_utf8(line(SystemTime::UNIX_EPOCH, &entry())).unwrap();
        let expected = serde_json::json!({
            "timestamp": "1970-01-01T00:00:00.000000Z", "protocol": "http", "method": "POST /v2/models/m/infer",
            "model": "m", "version": "3", "request_id": "a\"b", "status": 200, "request_bytes": 7,
            "response_bytes": 9, "queue_us": 5, "compute_us": 6, "total_us": 2000, "peer": "127.0.0.1:80",
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        assert!(text.ends_with("}\n"));
        let unknown = AccessEntry {
            model: "".into(),
            version: None,
            request_id: "".into(),
            status: None,
            times: RequestTimes::default(),
            peer: None,
            ..entry()
        };
        let read: serde_json::Value =
            serde_json::from_slice(&line(SystemTime::UNIX_EPOCH, &unknown)).unwrap();
        let expected = serde_json::json!({
            "timestamp": "1970-01-01T00:00:00.000000Z", "protocol": "http", "method": "POST /v2/models/m/infer",
            "cancelled": true, "request_bytes": 7, "response_bytes": 9, "total_us": 2000,
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn the_rate_is_kept_from_the_first_request_on() {
        let directory = tempfile::tempdir().unwrap();
        for (rate, expected) in [(1.0, 100), (0.5, 50), (0.1, 10), (0.25, 25), (0.0, 0)] {
            let log = log(directory.path().join("log"), rate);
            assert_eq!((0..100).filter(|_| log.samples()).count(), expected, "{rate}");
        }
    }

    #[test]
    fn lines_are_in_the_file_after_a_flush_and_in_a_new_file_after_a_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
        let log = log(path.clone(), 1.0);
        log.write(entry());
        log.flush();
        std::fs::rename(&path, &old).unwrap();
        log.reopen();
        log.write(entry());
        log.write(entry());
        log.flush();
        let lines = |path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((lines(old), lines(path)), (1, 2));
    }

    #[test]
    fn a_flush_waits_for_lines_that_fill_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (messages, received) = sync_channel(2);
        let log = Arc::new(unwritten(messages));
        (0..2).for_each(|_| log.write(entry()));
        let (begun, has_begun) = sync_channel(0);
        let flushed = {
            let log = log.clone();
            thread::spawn(move || {
                begun.send(()).unwrap();
                log.flush_within(Duration::from_secs(3600));
            })
        };
        has_begun.recv().unwrap();
        let output = AccessLogOutput::start(Some(path.clone()), Arc::default()).unwrap();
        thread::spawn(move || write_all(&received, output));
        flushed.join().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        let path = Some(PathBuf::from("/nonexistent/log"));
        let error = AccessLogWriter::start(&AccessLogSettings { path, rate: 1.0 }).unwrap_err();
        assert!(error.message.starts_with("failed to open access log '/nonexistent/log': "), "{error}");
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_not_counted_as_written() {
        let log = log("/dev/full".into(), 1.0);
        (0..5).for_each(|_| log.write(entry()));
        log.flush_within(testing::http::TIMEOUT);
        assert_eq!((log.counts.written(), log.counts.lost()), (0, 5));
        let mut text = MetricsText::default();
        log.append_to(&mut text);
        let text = text.finish();
        assert!(text.contains("\nnereid_access_log_lines_total 0\n"), "{text}");
        assert!(text.contains("\nnereid_access_log_dropped_total 5\n"), "{text}");
    }

    #[test]
    fn entries_beyond_the_queue_are_dropped_and_counted() {
        let (messages, received) = sync_channel(2);
        let log = unwritten(messages);
        (0..5).for_each(|_| log.write(entry()));
        let mut text = MetricsText::default();
        log.append_to(&mut text);
        assert!(text.finish().ends_with("\nnereid_access_log_dropped_total 3\n"));
        assert_eq!(received.try_iter().count(), 2);
    }
}
