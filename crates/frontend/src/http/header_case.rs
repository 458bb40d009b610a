//! Header names and values as the client wrote them.
//!
//! Forwarded headers become parameters under their names on the wire, with the spaces after their values, as in the
//! reference. hyper gives names only in lower case, and removes those spaces. If the server forwards headers, a
//! connection therefore stores the latest bytes that it has read. The server looks up the original name and value in
//! these bytes. Other connections store nothing.
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use inference::lock::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes of one read that may belong to a header block. A block begins at the start of a read, or in the rest of an
/// earlier read.
const OF_ONE_READ: usize = 32 << 10;

/// The most stored bytes. Beyond it the older half is dropped.
const REMEMBERED: usize = 128 << 10;

/// The latest bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct RecentHeaderNames {
    bytes: Mutex<Vec<u8>>,
}

impl RecentHeaderNames {
    fn push(&self, read: &[u8]) {
        let mut bytes = self.bytes.lock();
        bytes.extend_from_slice(&read[..read.len().min(OF_ONE_READ)]);
        if bytes.len() > REMEMBERED {
            let old = bytes.len() - REMEMBERED / 2;
            bytes.drain(..old);
        }
    }

    /// The name and value, as the client wrote them, of the latest header line with this lower-case name and this
    /// value.
    pub(super) fn as_written(&self, name: &str, value: &[u8]) -> Option<(String, Vec<u8>)> {
        let bytes = self.bytes.lock();
        bytes.rsplit(|&byte| byte == b'\n').find_map(|line| {
            let (written, rest) = line.split_at_checked(name.len())?;
            let rest = rest.strip_prefix(b":")?;
            let same = written.eq_ignore_ascii_case(name.as_bytes()) && rest.trim_ascii() == value;
            let rest = rest.strip_suffix(b"\r").unwrap_or(rest).trim_ascii_start();
            same.then(|| (String::from_utf8_lossy(written).into_owned(), rest.to_vec()))
        })
    }
}

/// A stream. It stores its latest bytes if the server forwards headers.
pub(super) struct NameRecorder<S> {
    stream: S,
    recent: Option<Arc<RecentHeaderNames>>,
}

impl<S> NameRecorder<S> {
    pub(super) fn new(stream: S, recent: Option<Arc<RecentHeaderNames>>) -> Self {
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
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(recent) = &self.recent {
            recent.push(&buffer.filled()[before..]);
        }
        read
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

    #[test]
    fn the_latest_line_counts_as_it_was_written() {
        let recent = RecentHeaderNames::default();
        recent.push(b"POST / HTTP/1.1\r\nMY_Other: x\r\nPriority:5 \r\n\r\nmy_OTHER: y\r\n");
        recent.push(b"GET / HTTP/1.1\r\nmy_Other:  x\r\n\r\n");
        let written = |name: &str, value: &[u8]| {
            let (name, value) = recent.as_written(name, value).unwrap();
            (name, String::from_utf8(value).unwrap())
        };
        assert_eq!(written("my_other", b"x"), ("my_Other".to_owned(), "x".to_owned()));
        assert_eq!(written("my_other", b"y"), ("my_OTHER".to_owned(), "y".to_owned()));
        // A space after the value is part of the value.
        assert_eq!(written("priority", b"5"), ("Priority".to_owned(), "5 ".to_owned()));
        assert_eq!(recent.as_written("priority", b"6"), None);
    }

    #[test]
    fn only_a_few_header_names_are_remembered() {
        let recent = RecentHeaderNames::default();
        recent.push(b"\nOld: 1\r\n");
        for _ in 0..10 {
            recent.push(&[b'x'; 1 << 20]);
        }
        assert!(recent.bytes.lock().len() <= REMEMBERED);
        assert_eq!(recent.as_written("old", b"1"), None);
    }
}
