//! Writes the access log: a JSON object in a line for each sampled request.
//!
//! A thread of its own writes. Threads of the network only hand it entries through a bounded queue. If the queue is
//! full, because the disk or the reader of a pipe is slow, an entry is dropped and counted: a log must not delay
//! requests.
use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, SystemTime},
};

use assembly::logging::{WaitingStdout, timestamp};
use frontend::access::{AccessEntry, AccessLog};
use inference::{
    MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricsText},
};
use vocabulary::Error;

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
    written: Arc<AtomicU64>,
    dropped: AtomicU64,
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

/// The destination of the lines.
#[derive(Debug)]
struct AccessLogOutput {
    /// `None` for stdout.
    path: Option<PathBuf>,
    lines: BufWriter<Box<dyn DebugWrite>>,
}

trait DebugWrite: Write + Send + std::fmt::Debug {}
impl<W: Write + Send + std::fmt::Debug> DebugWrite for W {}

impl AccessLogWriter {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    /// INTERNAL: the file cannot be opened, or the system refuses to start a thread.
    pub fn start(settings: &AccessLogSettings) -> Result<Arc<Self>, Error> {
        let output = AccessLogOutput::open(settings.path.clone())?;
        let (messages, received) = sync_channel(WAITING);
        let written = Arc::new(AtomicU64::new(0));
        let counted = written.clone();
        let refused =
            |error| Error::internal(format!("failed to start the thread of the access log: {error}"));
        thread::Builder::new()
            .name("access log".to_owned())
            .spawn(move || write_all(&received, output, &counted))
            .map_err(refused)?;
        Ok(Arc::new(Self {
            rate: settings.rate,
            candidates: AtomicU64::new(0),
            written,
            dropped: AtomicU64::new(0),
            messages,
        }))
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
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl MetricSource for AccessLogWriter {
    fn append_to(&self, text: &mut MetricsText) {
        let counters = [
            ("nereid_access_log_lines_total", "Number of written lines of the access log", &*self.written),
            (
                "nereid_access_log_dropped_total",
                "Number of lines of the access log that were dropped, because writing them took too long",
                &self.dropped,
            ),
        ];
        for (name, help, count) in counters {
            let count = count.load(Relaxed) as f64;
            MetricFamilyText::begin(text, name, MetricKind::Counter, help).sample("", count);
        }
    }
}

fn write_all(messages: &Receiver<WriterMessage>, mut output: AccessLogOutput, written: &AtomicU64) {
    let mut is_failing = false;
    while let Some(message) = next(messages, &mut output) {
        match message {
            WriterMessage::Entry(at, entry) => match output.lines.write_all(&line(at, &entry)) {
                Ok(()) => {
                    written.fetch_add(1, Relaxed);
                    is_failing = false;
                }
                Err(error) if !is_failing => {
                    log::error!("failed to write the access log: {error}");
                    is_failing = true;
                }
                Err(_) => {}
            },
            WriterMessage::Reopen => match AccessLogOutput::open(output.path.clone()) {
                Ok(opened) => output = opened,
                Err(error) => log::error!("the old access log stays open (SIGHUP): {error}"),
            },
            WriterMessage::Flush(tell) => {
                let _ = output.lines.flush();
                let _ = tell.send(());
            }
        }
    }
}

/// The next message. Before the thread waits for one, it writes what it has collected.
fn next(messages: &Receiver<WriterMessage>, output: &mut AccessLogOutput) -> Option<WriterMessage> {
    match messages.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            let _ = output.lines.flush();
            messages.recv().ok()
        }
    }
}

impl AccessLogOutput {
    /// Opens the file at `path`, or stdout.
    fn open(path: Option<PathBuf>) -> Result<Self, Error> {
        let lines: Box<dyn DebugWrite> = match &path {
            Some(path) => Box::new(append_to(path)?),
            None => Box::new(WaitingStdout),
        };
        Ok(Self { path, lines: BufWriter::new(lines) })
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
        let log = Arc::new(AccessLogWriter {
            rate: 1.0,
            candidates: AtomicU64::new(0),
            written: Arc::default(),
            dropped: AtomicU64::new(0),
            messages,
        });
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
        let output = AccessLogOutput::open(Some(path.clone())).unwrap();
        thread::spawn(move || write_all(&received, output, &AtomicU64::new(0)));
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
    fn entries_beyond_the_queue_are_dropped_and_counted() {
        let (messages, received) = sync_channel(2);
        let log = AccessLogWriter {
            rate: 1.0,
            candidates: AtomicU64::new(0),
            written: Arc::default(),
            dropped: AtomicU64::new(0),
            messages,
        };
        (0..5).for_each(|_| log.write(entry()));
        let mut text = MetricsText::default();
        log.append_to(&mut text);
        assert!(text.finish().ends_with("\nnereid_access_log_dropped_total 3\n"));
        assert_eq!(received.try_iter().count(), 2);
    }
}
