//! Ends a connection if bytes wait for its client and the client reads nothing.
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Runs while a write or a flush is pending. Each byte that the client reads ends the wait.
#[derive(Debug)]
pub(crate) struct WriteTimeout {
    limit: Option<Duration>,
    write: Option<Pin<Box<Sleep>>>,
    /// Separate from the timer of writes, because a stream without its own buffer always reports a complete flush.
    flush: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    /// Waits for a client for at most `limit`. `None` is no limit.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, write: None, flush: None }
    }

    /// Returns the result of a write, or an error if the client has read nothing for too long.
    pub(crate) fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        check(&mut self.write, self.limit, context, polled)
    }

    /// Returns the result of a flush or a shutdown in the same way.
    pub(crate) fn check_flush(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.flush, self.limit, context, polled)
    }
}

fn check<T>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    limit: Option<Duration>,
    context: &mut Context<'_>,
    polled: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    let Some(limit) = limit else { return polled };
    if polled.is_ready() {
        *timer = None;
        return polled;
    }
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(limit)));
    let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing"));
    timer.as_mut().poll(context).map(|()| late())
}

/// A stream with a time limit for its writes. It also records that bytes have come.
pub(crate) struct Timed<S> {
    stream: S,
    write_timeout: WriteTimeout,
    /// Each read that returns bytes sets it.
    has_read: Arc<AtomicBool>,
}

impl<S> Timed<S> {
    /// Each read that returns bytes sets `has_read`.
    pub(crate) fn new(stream: S, write_timeout: Option<Duration>, has_read: Arc<AtomicBool>) -> Self {
        Self { stream, write_timeout: WriteTimeout::new(write_timeout), has_read }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.has_read.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.write_timeout.check_write(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.write_timeout.check_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.write_timeout.check_flush(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.write_timeout.check_flush(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_ends_the_connection() {
        let (_client, server) = duplex(64);
        let mut server = Timed::new(server, Some(LIMIT), Arc::default());
        let begin = tokio::time::Instant::now();
        let error = server.write_all(&[0; 65]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= LIMIT && begin.elapsed() < 2 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_goes_on_as_long_as_it_takes_something() {
        let (mut client, server) = duplex(64);
        let mut server = Timed::new(server, Some(LIMIT), Arc::default());
        let writing = tokio::spawn(async move { server.write_all(&[0; 300]).await });
        let mut taken = 0;
        while taken < 300 {
            tokio::time::sleep(LIMIT / 2).await;
            taken += client.read(&mut [0; 30]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }
}
