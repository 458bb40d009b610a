//! Header names and values as the client wrote them.
//!
//! Forwarded headers become parameters under their names on the wire, with the spaces after their values, as in the
//! reference. hyper gives names only in lower case, and removes those spaces. If the server forwards headers, a
//! connection therefore stores the bytes that it has read since the last request began. The next request takes them, and
//! finds all its forwarded headers in one pass. Bodies are not stored, unless they look like a request. Other connections
//! store nothing.
use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use inference::lock::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use vocabulary::{ByteBudget, ByteReservation};

use super::activity::ConnectionActivity;

/// The bytes of one read that may belong to a header block. A block begins at the start of a read, or in the rest of an
/// earlier read.
const OF_ONE_READ: usize = 32 << 10;

/// The most stored bytes. Beyond it the older half is dropped.
const REMEMBERED: usize = 128 << 10;

/// A part of the first line of each request.
const OF_REQUEST_LINE: &[u8] = b" HTTP/1.";

/// The latest bytes of a connection.
#[derive(Debug)]
pub(super) struct RecentHeaderNames {
    recent: Mutex<RecentBytes>,
    budget: Arc<ByteBudget>,
}

#[derive(Debug)]
struct RecentBytes {
    bytes: Vec<u8>,
    /// Holds the capacity of `bytes`.
    reservation: ByteReservation,
    /// The end of the bytes of a body that were not stored.
    end_of_body: Vec<u8>,
}

/// The bytes with the head of one request.
#[derive(Debug)]
pub(super) struct WrittenHead {
    bytes: Vec<u8>,
    /// Counts `bytes`.
    _reservation: ByteReservation,
}

/// A header line: the name and the value as the client wrote them.
pub(super) type WrittenLine<'h> = (&'h [u8], &'h [u8]);

impl RecentHeaderNames {
    /// Counts the bytes in `budget`.
    pub(super) fn new(budget: Arc<ByteBudget>) -> Self {
        let recent =
            RecentBytes { bytes: Vec::new(), reservation: budget.reservation(), end_of_body: Vec::new() };
        Self { recent: Mutex::new(recent), budget }
    }

    /// Stores what was read. During a request these are bytes of its body, or further requests.
    fn push(&self, read: &[u8], is_during_request: bool) {
        let mut recent = self.recent.lock();
        if !is_during_request || !recent.bytes.is_empty() || recent.begins_request(read) {
            recent.push(&read[..read.len().min(OF_ONE_READ)]);
        }
    }

    /// The head of the request that begins now.
    pub(super) fn take(&self) -> WrittenHead {
        let mut recent = self.recent.lock();
        let parts = recent.bytes.windows(OF_REQUEST_LINE.len()).enumerate();
        let mut heads = parts.filter(|(_, part)| *part == OF_REQUEST_LINE).map(|(index, _)| index);
        if let (Some(first), Some(_)) = (heads.next(), heads.next())
            && let Ok(reservation) = self.budget.reserve(recent.bytes.len())
        {
            // The bytes may contain the next request, too. This one has the first line.
            let head = WrittenHead { bytes: recent.bytes.clone(), _reservation: reservation };
            recent.bytes.drain(..first + OF_REQUEST_LINE.len());
            return head;
        }
        let reserved = recent.reservation.bytes();
        WrittenHead {
            bytes: std::mem::take(&mut recent.bytes),
            _reservation: recent.reservation.split_off(reserved),
        }
    }
}

impl RecentBytes {
    /// Tells whether bytes during a request contain the first line of another one, which may have begun in the bytes before
    /// them.
    fn begins_request(&mut self, read: &[u8]) -> bool {
        let begin = &read[..read.len().min(OF_REQUEST_LINE.len())];
        let seam = [&self.end_of_body, begin].concat();
        let contains =
            |bytes: &[u8]| bytes.windows(OF_REQUEST_LINE.len()).any(|part| part == OF_REQUEST_LINE);
        if contains(read) || contains(&seam) {
            self.end_of_body.clear();
            return true;
        }
        let most = OF_REQUEST_LINE.len() - 1;
        let end = if read.len() < most { &seam } else { read };
        self.end_of_body = end[end.len().saturating_sub(most)..].to_vec();
        false
    }

    fn push(&mut self, read: &[u8]) {
        let len = self.bytes.len() + read.len();
        if len > self.bytes.capacity() {
            let capacity = len.next_power_of_two();
            if self.reservation.grow_to(capacity).is_err() {
                // Names are in lower case while the server has no room for requests.
                self.bytes = Vec::new();
                self.reservation.shrink_to(0);
                return;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(read);
        if self.bytes.len() > REMEMBERED {
            let old = self.bytes.len() - REMEMBERED / 2;
            self.bytes.drain(..old);
        }
    }
}

impl WrittenHead {
    /// For each of `headers`, of which names are in lower case and values without spaces around them: the latest line with
    /// this name and this value, if there is one. Takes time in proportion to the bytes and the headers.
    pub(super) fn lines_of(&self, headers: &[(&str, &[u8])]) -> Vec<Option<WrittenLine<'_>>> {
        let keys = headers.iter().map(|(name, value)| (name.as_bytes(), *value));
        let mut missing: HashMap<(&[u8], &[u8]), Vec<usize>> = HashMap::new();
        keys.enumerate().for_each(|(index, key)| missing.entry(key).or_default().push(index));
        let mut found = vec![None; headers.len()];
        let mut left = missing.len();
        let mut lower = Vec::new();
        for line in self.bytes.rsplit(|&byte| byte == b'\n') {
            if left == 0 {
                break;
            }
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (name, rest) = (&line[..colon], &line[colon + 1..]);
            lower.clear();
            lower.extend(name.iter().map(u8::to_ascii_lowercase));
            let Some(indexes) = missing.get(&(&*lower, rest.trim_ascii())) else { continue };
            if found[indexes[0]].is_some() {
                continue;
            }
            let value = rest.strip_suffix(b"\r").unwrap_or(rest).trim_ascii_start();
            indexes.iter().for_each(|&index| found[index] = Some((name, value)));
            left -= 1;
        }
        found
    }
}

/// A stream. It stores its latest bytes if the server forwards headers.
pub(super) struct NameRecorder<S> {
    stream: S,
    recent: Option<(Arc<RecentHeaderNames>, Arc<ConnectionActivity>)>,
}

impl<S> NameRecorder<S> {
    /// `recent`: where the bytes are stored, and what the connection is doing.
    pub(super) fn new(stream: S, recent: Option<(Arc<RecentHeaderNames>, Arc<ConnectionActivity>)>) -> Self {
        Self { stream, recent }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for NameRecorder<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some((recent, activity)) = &self.recent {
            let read = &buffer.filled()[before..];
            if !read.is_empty() {
                recent.push(read, !activity.is_idle());
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NameRecorder<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent() -> RecentHeaderNames {
        RecentHeaderNames::new(ByteBudget::new(1 << 20))
    }

    fn written(head: &WrittenHead, name: &str, value: &[u8]) -> Option<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        head.lines_of(&[(name, value)])[0].map(|(name, value)| (text(name), text(value)))
    }

    fn line(name: &str, value: &str) -> Option<(String, String)> {
        Some((name.to_owned(), value.to_owned()))
    }

    #[test]
    fn the_latest_line_counts_as_it_was_written() {
        let recent = recent();
        recent.push(b"POST / HTTP/1.1\r\nMY_Other: x\r\nPriority:5 \r\n\r\nmy_OTHER: y\r\n", false);
        recent.push(b"my_Other:  x\r\n\r\n", false);
        let head = recent.take();
        assert_eq!(written(&head, "my_other", b"x"), line("my_Other", "x"));
        assert_eq!(written(&head, "my_other", b"y"), line("my_OTHER", "y"));
        // A space after the value is part of the value.
        assert_eq!(written(&head, "priority", b"5"), line("Priority", "5 "));
        assert_eq!(written(&head, "priority", b"6"), None);
        let both: Vec<_> = head.lines_of(&[("priority", b"5"), ("no", b""), ("priority", b"5")]);
        assert_eq!(both, [Some((&b"Priority"[..], &b"5 "[..])), None, Some((&b"Priority"[..], &b"5 "[..]))]);
    }

    #[test]
    fn the_bytes_are_counted_and_bodies_are_not_stored() {
        let budget = ByteBudget::new(1 << 20);
        let recent = RecentHeaderNames::new(budget.clone());
        recent.push(b"POST / HTTP/1.1\r\nMy: x\r\n\r\n", false);
        assert!(budget.used() >= 27);
        let head = recent.take();
        for _ in 0..10 {
            recent.push(&[b'x'; 1 << 20], true);
        }
        assert!(budget.used() < 64, "{}", budget.used());
        assert_eq!(written(&head, "my", b"x"), line("My", "x"));
        drop(head);
        assert_eq!(budget.used(), 0, "a connection without a request stores nothing");

        for _ in 0..10 {
            recent.push(&[b'x'; 1 << 20], false);
        }
        assert!((1..=2 * REMEMBERED).contains(&budget.used()));
        let full = budget.reserve(budget.limit() - budget.used()).unwrap();
        recent.push(&[b'x'; OF_ONE_READ], false);
        drop((recent, full));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn without_room_nothing_is_stored() {
        let budget = ByteBudget::new(16);
        let recent = RecentHeaderNames::new(budget.clone());
        recent.push(b"POST / HTTP/1.1\r\nMy: x\r\n\r\n", false);
        assert_eq!((budget.used(), written(&recent.take(), "my", b"x")), (0, None));
    }

    #[test]
    fn each_of_several_requests_in_one_read_finds_its_lines() {
        let budget = ByteBudget::new(1 << 20);
        let recent = RecentHeaderNames::new(budget.clone());
        recent.push(b"GET /1 HTTP/1.1\r\nAn-A: 1\r\n\r\nGET /2 HTTP/1.1\r\nA-nB: 2\r\n\r\n", false);
        assert_eq!(written(&recent.take(), "an-a", b"1"), line("An-A", "1"));
        assert_eq!(written(&recent.take(), "a-nb", b"2"), line("A-nB", "2"));
        assert_eq!(budget.used(), 0);
        // A request behind a body, wherever the reads divide its first line.
        for at in 0..20 {
            let recent = super::tests::recent();
            let bytes = b"bodyGET /3 HTTP/1.1\r\nA-nC: 3\r\n\r\n";
            recent.push(&bytes[..at], true);
            recent.push(&bytes[at..], true);
            assert_eq!(written(&recent.take(), "a-nc", b"3"), line("A-nC", "3"), "{at}");
        }
    }

    #[test]
    fn many_headers_are_found_in_one_pass() {
        let recent = recent();
        let lines: String = (0..250).map(|index| format!("Name-{index}: {index}\r\n")).collect();
        recent.push(format!("GET / HTTP/1.1\r\n{lines}\r\n").as_bytes(), false);
        let names: Vec<_> = (0..250).map(|index| (format!("name-{index}"), index.to_string())).collect();
        let headers: Vec<_> = names.iter().map(|(name, value)| (&**name, value.as_bytes())).collect();
        let head = recent.take();
        let found = head.lines_of(&headers);
        for ((name, value), line) in headers.iter().zip(found) {
            let (written, as_written) = line.unwrap();
            assert!(written.starts_with(b"Name-") && written.eq_ignore_ascii_case(name.as_bytes()));
            assert_eq!(as_written, *value);
        }
    }
}
