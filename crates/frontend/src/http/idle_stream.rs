//! A stream that waits for its client without a buffer.
//!
//! hyper has two buffers of 8 KiB and a map of headers for a connection. A connection that has had no request for a while is
//! taken from it, so that thousands of idle ones need little memory, and goes back with the first byte of the next request.
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A stream whose next byte may already have been read.
pub(super) struct IdleStream<S> {
    stream: S,
    next: Option<u8>,
}

impl<S: AsyncRead + Unpin> IdleStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, next: None }
    }

    /// Waits for the client. Returns false if it sends nothing more. May be dropped at any time: nothing is lost.
    pub(super) async fn has_more(&mut self) -> bool {
        let mut byte = [0];
        // A stream that has failed has nothing either.
        let has_more = matches!(self.stream.read(&mut byte).await, Ok(1));
        if has_more {
            self.next = Some(byte[0]);
        }
        has_more
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(byte) = self.next.take()
        {
            buffer.put_slice(&[byte]);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            // What has come with it, if anything. An error or an end comes again with the next read.
            let _ = Pin::new(&mut self.stream).poll_read(context, buffer);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleStream<S> {
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
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_byte_that_was_waited_for_is_read_first() {
        let (mut client, server) = duplex(64);
        let mut server = IdleStream::new(server);
        for text in ["abc", "d", "efgh"] {
            client.write_all(text.as_bytes()).await.unwrap();
            assert!(server.has_more().await);
            let mut read = vec![0; text.len()];
            assert_eq!(server.read(&mut read).await.unwrap(), text.len());
            assert_eq!(read, text.as_bytes());
        }
        client.write_all(b"ij").await.unwrap();
        assert!(server.has_more().await);
        let mut one = [0];
        for expected in b"ij" {
            server.read_exact(&mut one).await.unwrap();
            assert_eq!(one, [*expected]);
        }
        drop(client);
        assert!(!server.has_more().await);
    }

    #[tokio::test]
    async fn an_end_behind_the_byte_comes_after_it() {
        let (mut client, server) = duplex(64);
        let mut server = IdleStream::new(server);
        client.write_all(b"x").await.unwrap();
        drop(client);
        assert!(server.has_more().await);
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"x");
    }
}
