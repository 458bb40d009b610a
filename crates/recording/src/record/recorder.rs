//! What is recorded, within its limits, and the thread that writes it.
//!
//! The connections never wait. What is not written yet is counted in bytes; a body that finds no room is left out.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use line_writer::{LineAccount, LineCounts, LineWriter};
use rustix::fs::OFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hidden_tensors::{BodyContent, HiddenBody, hidden};
use super::options::{RecordOptions, RecordingLimits};
use crate::event::{FORM, RecordedBody, RecordedEvent};
use crate::forwarded_headers::RecordedHeaders;

/// What an event takes in memory beside its body and headers, in bytes. Generous.
const EVENT_BYTES: usize = 512;
/// After this time without an event, what was written goes to the file.
const WRITTEN_WITHIN: Duration = Duration::from_millis(200);

/// Takes the events of all connections. Shared by them.
pub(crate) struct Recorder {
    /// What is recorded of the head of a message.
    pub(crate) headers: RecordedHeaders,
    started: Instant,
    limits: RecordingLimits,
    room: Arc<Semaphore>,
    next_call: AtomicU64,
    state: Arc<RecordingState>,
    queue: mpsc::Sender<QueuedEvent>,
}

/// What has become of the recording so far.
#[derive(Default)]
struct RecordingState {
    /// The file has all that it may have, or cannot be written.
    is_full: AtomicBool,
    /// The bytes of all lines so far.
    bytes: AtomicU64,
    omitted: AtomicU64,
}

/// The figures of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordingFigures {
    pub(crate) calls: u64,
    /// Bodies that found no room.
    pub(crate) omitted: u64,
    pub(crate) bytes: u64,
}

/// An event, and the body that belongs in it, if one does.
struct QueuedEvent {
    event: RecordedEvent,
    body: Option<(CollectedBody, BodyContent)>,
    _room: OwnedSemaphorePermit,
}

/// The pieces of a body, within the limits of the recording.
#[derive(Default)]
pub(crate) struct CollectedBody {
    pieces: Vec<Bytes>,
    length: usize,
    room: Option<OwnedSemaphorePermit>,
    omitted: Option<&'static str>,
}

/// The thread that writes. [`RecordingThread::join`] waits until everything is in the file.
pub(crate) struct RecordingThread {
    path: String,
    /// Gets the result when everything is in the file.
    written: mpsc::Receiver<Result<()>>,
}

impl RecordingThread {
    /// Waits for the end of the recorder and all that is queued, but not longer than `limit`: a pipe that nobody reads or a
    /// disk that hangs must not keep the command from ending.
    ///
    /// # Errors
    /// The file could not be written, or not in time.
    pub(crate) fn join(self, limit: Duration) -> Result<()> {
        match self.written.recv_timeout(limit) {
            Ok(written) => written,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(anyhow!("{} has not taken all within {} seconds", self.path, limit.as_secs()))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(anyhow!("the thread that writes has failed")),
        }
    }
}

impl Recorder {
    /// Makes the file and begins.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn start(options: &RecordOptions) -> Result<(Recorder, RecordingThread)> {
        let path = options.file.display().to_string();
        let file = create_private(&options.file).with_context(|| format!("cannot make {path}"))?;
        let state = Arc::new(RecordingState::default());
        let (queue, events) = mpsc::channel();
        let writer = RecordingWriter {
            lines: LineWriter::new(file),
            account: LineAccount::new(
                format!("events of the recording {path}"),
                Arc::<LineCounts>::default(),
            ),
            state: state.clone(),
            limit: options.limits.file,
            hides_tensors: options.hides_tensors,
        };
        let (tell, written) = mpsc::channel();
        let thread = RecordingThread { path: path.clone(), written };
        let write = move || {
            // Nobody waits for a file that takes too long.
            let _ = tell.send(writer.run(&events).with_context(|| format!("cannot write {path}")));
        };
        thread::Builder::new().name("recording".to_owned()).spawn(write)?;
        let recorder = Recorder {
            headers: options.headers.clone(),
            started: Instant::now(),
            limits: options.limits,
            room: Arc::new(Semaphore::new(options.limits.memory)),
            next_call: AtomicU64::new(0),
            state,
            queue,
        };
        Ok((recorder, thread))
    }

    /// The time since the begin, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The number of a new call. `None` if nothing more is recorded.
    pub(crate) fn begin_call(&self) -> Option<u64> {
        if self.is_complete() {
            return None;
        }
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        (call < self.limits.calls).then_some(call)
    }

    /// Nothing more is recorded.
    pub(crate) fn is_complete(&self) -> bool {
        self.state.is_full.load(Ordering::Relaxed)
            || self.next_call.load(Ordering::Relaxed) >= self.limits.calls
            || self.started.elapsed() >= self.limits.duration
    }

    /// Adds a piece to a body, if there is room.
    pub(crate) fn collect(&self, body: &mut CollectedBody, piece: &Bytes) {
        if body.omitted.is_some() {
            return;
        }
        body.length += piece.len();
        if body.length > self.limits.body {
            return body.omit("longer than --max-body-bytes");
        }
        let Some(room) = self.room_for(piece.len()) else {
            return body.omit("no room within --max-memory-bytes");
        };
        match &mut body.room {
            Some(all) => all.merge(room),
            all @ None => *all = Some(room),
        }
        body.pieces.push(piece.clone());
    }

    /// Queues an event, with the body that belongs in it. An event without room is left out.
    pub(crate) fn queue(&self, event: RecordedEvent, body: Option<(CollectedBody, BodyContent)>) {
        match self.room_for(EVENT_BYTES + event_bytes(&event)) {
            // If the writer has ended, there is nothing to record.
            Some(room) => drop(self.queue.send(QueuedEvent { event, body, _room: room })),
            None => {
                self.state.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    pub(crate) fn figures(&self) -> RecordingFigures {
        RecordingFigures {
            calls: self.next_call.load(Ordering::Relaxed).min(self.limits.calls),
            omitted: self.state.omitted.load(Ordering::Relaxed),
            bytes: self.state.bytes.load(Ordering::Relaxed),
        }
    }
}

/// Makes a file that only its owner can read, or empties one that this user already has.
///
/// # Errors
/// The path is a symbolic link or the file of another user, or the system refuses. Somebody else could otherwise choose
/// where the recording goes, or read it.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            io::Error::other("it is a symbolic link, which is not followed")
        }
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        // An existing file may be one that others can read.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    Ok(file)
}

impl CollectedBody {
    fn omit(&mut self, reason: &'static str) {
        *self = CollectedBody { omitted: Some(reason), ..CollectedBody::default() };
    }
}

/// The bytes of headers and path in an event.
fn event_bytes(event: &RecordedEvent) -> usize {
    let of = |headers: &[(String, String)]| -> usize {
        headers.iter().map(|(name, value)| name.len() + value.len() + 64).sum()
    };
    match event {
        RecordedEvent::Request(request) => request.path.len() + of(&request.headers),
        RecordedEvent::Answer(answer) => of(&answer.headers) + of(&answer.trailers),
        _ => 0,
    }
}

/// Writes the lines. Runs in a thread of its own.
struct RecordingWriter {
    lines: LineWriter<File>,
    account: LineAccount,
    state: Arc<RecordingState>,
    limit: u64,
    hides_tensors: bool,
}

impl RecordingWriter {
    fn run(mut self, events: &mpsc::Receiver<QueuedEvent>) -> std::io::Result<()> {
        let written = self.write_all(events);
        self.state.is_full.store(true, Ordering::Relaxed);
        tell(self.account.last_report());
        match self.account.counts().lost() {
            0 => written,
            lost => Err(io::Error::other(format!("{lost} events were lost"))),
        }
    }

    fn write_all(&mut self, events: &mpsc::Receiver<QueuedEvent>) -> std::io::Result<()> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_unix_us = u64::try_from(started.as_micros()).unwrap_or(u64::MAX);
        self.write(&RecordedEvent::Recording { form: FORM, started_unix_us })?;
        self.flush();
        // Without its first line a recording cannot be read.
        if self.account.counts().lost() > 0 {
            return Ok(());
        }
        loop {
            let queued = match events.recv_timeout(WRITTEN_WITHIN) {
                Ok(queued) => queued,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.flush();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return Ok(());
                }
            };
            let QueuedEvent { mut event, body, _room } = queued;
            if let Some((body, content)) = body {
                self.fill(&mut event, &body, &content);
            }
            if !self.write(&event)? {
                self.state.is_full.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Puts the body into its event.
    fn fill(&self, event: &mut RecordedEvent, body: &CollectedBody, content: &BodyContent) {
        let bytes = body.omitted.map_or(Ok(body.pieces.concat()), Err);
        let hidden = bytes.and_then(|bytes| match self.hides_tensors {
            true => hidden(bytes, content).ok_or("its tensors could not be hidden"),
            false => Ok(HiddenBody { bytes, json_length: None }),
        });
        let (body, json_length) = match hidden {
            Ok(hidden) => (RecordedBody::of(hidden.bytes), hidden.json_length),
            Err(reason) => {
                self.state.omitted.fetch_add(1, Ordering::Relaxed);
                (RecordedBody::Omitted(reason.to_owned()), None)
            }
        };
        let headers = match event {
            RecordedEvent::Request(request) => {
                request.body = body;
                &mut request.headers
            }
            RecordedEvent::Answer(answer) => {
                answer.body = body;
                &mut answer.headers
            }
            RecordedEvent::Message { body: empty, .. } | RecordedEvent::AnswerMessage { body: empty, .. } => {
                *empty = body;
                return;
            }
            RecordedEvent::Recording { .. } | RecordedEvent::EndOfMessages { .. } => return,
        };
        if self.hides_tensors && *content != BodyContent::Plain {
            // A hidden body is not compressed, and its JSON can have another length.
            headers.retain(|(name, _)| name != "content-encoding");
            for (name, value) in headers {
                if let ("inference-header-content-length", Some(length)) = (name.as_str(), json_length) {
                    *value = length.to_string();
                }
            }
        }
    }

    /// Writes a line, unless the file would get longer than it may be: then returns `false`.
    fn write(&mut self, event: &RecordedEvent) -> std::io::Result<bool> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let length = self.state.bytes.load(Ordering::Relaxed) + line.len() as u64;
        if length > self.limit {
            return Ok(false);
        }
        self.lines.collect(&line, 1, &mut self.account);
        tell(self.account.due_report(Instant::now()));
        self.state.bytes.store(length, Ordering::Relaxed);
        Ok(true)
    }

    fn flush(&mut self) {
        self.lines.flush(&mut self.account);
        tell(self.account.due_report(Instant::now()));
    }
}

fn tell(report: Option<String>) {
    if let Some(report) = report {
        // Without a reader of stderr, nobody can be told.
        let _ = writeln!(io::stderr(), "error: {report}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::record::options;

    fn record_options(path: &Path) -> RecordOptions {
        options::parse([Path::new("record"), path].map(Into::into)).unwrap()
    }

    #[test]
    fn a_file_that_takes_nothing_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let unread = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let (recorder, thread) = Recorder::start(&record_options(&pipe)).unwrap();
        // More than a pipe takes.
        let body = RecordedBody::of(vec![7; 1 << 20]);
        recorder.queue(RecordedEvent::Message { call: 0, at_us: 0, body }, None);
        drop(recorder);
        let error = thread.join(Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), format!("{} has not taken all within 0 seconds", pipe.display()));
        drop(unread);
    }

    #[test]
    fn lost_events_are_an_error_at_the_end() {
        let (recorder, thread) = Recorder::start(&record_options(Path::new("/dev/full"))).unwrap();
        drop(recorder);
        let error = format!("{:#}", thread.join(Duration::MAX).unwrap_err());
        assert_eq!(error, "cannot write /dev/full: 1 events were lost");
    }

    #[test]
    fn only_the_owner_can_read_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            let path = folder.path().join(name);
            let (_, thread) = Recorder::start(&record_options(&path)).unwrap();
            thread.join(Duration::MAX).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("{\"event\":\"recording\"") && text.lines().count() == 1, "{text}");
            fs::metadata(path).unwrap().mode() & 0o7777
        };
        assert_eq!(mode("new"), 0o600);
        fs::write(folder.path().join("old"), "an earlier recording").unwrap();
        fs::set_permissions(folder.path().join("old"), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(mode("old"), 0o600);
    }

    #[test]
    fn a_recording_goes_through_no_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "content").unwrap();
        symlink(&target, &link).unwrap();
        let error = Recorder::start(&record_options(&link)).err().unwrap();
        let text = format!("{error:#}");
        assert!(text.ends_with("link: it is a symbolic link, which is not followed"), "{text}");
        assert_eq!(fs::read_to_string(target).unwrap(), "content");
    }
}
