//! Ends a connection if bytes wait for its client and the client reads nothing. When the server stops, it waits less
//! ([`ClientTimeout`]).
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{client_timeout::ClientTimeout, drain::Drain, io_turn::IoTurn};

/// Runs while a write or a flush is pending. Each byte that the client reads ends the wait.
#[derive(Debug)]
pub(crate) struct WriteTimeout {
    limit: Option<Duration>,
    drain: Drain,
    write: Option<ClientTimeout>,
    /// Separate from the timer of writes, because a stream without its own buffer always reports a complete flush.
    flush: Option<ClientTimeout>,
}

impl WriteTimeout {
    /// Waits for a client for at most `limit`. `None` is no limit before the drain begins.
    pub(crate) fn new(limit: Option<Duration>, drain: Drain) -> Self {
        Self { limit, drain, write: None, flush: None }
    }

    /// Returns the result of a write, or an error if the client has read nothing for too long.
    pub(crate) fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        check(&mut self.write, (self.limit, &self.drain), context, polled)
    }

    /// Returns the result of a flush or a shutdown in the same way.
    pub(crate) fn check_flush(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.flush, (self.limit, &self.drain), context, polled)
    }
}

fn check<T>(
    wait: &mut Option<ClientTimeout>,
    (limit, drain): (Option<Duration>, &Drain),
    context: &mut Context<'_>,
    polled: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if polled.is_ready() {
        *wait = None;
        return polled;
    }
    let wait = wait.get_or_insert_with(|| ClientTimeout::new(limit, drain));
    let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing"));
    wait.poll(context).map(|()| late())
}

/// What has passed on a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamProgress {
    /// Each read that returns bytes sets it.
    pub(crate) has_read: AtomicBool,
    /// The number of writes that the system took, in whole or in part.
    pub(crate) writes: AtomicUsize,
    /// Bytes wait for the client.
    pub(crate) is_writing: AtomicBool,
}

/// A stream with a time limit for its writes. It also records its progress.
pub(crate) struct TimedStream<S> {
    stream: S,
    write_timeout: WriteTimeout,
    /// Reads need none: the task of the connection takes what it has read before it reads on.
    writes: IoTurn,
    progress: Arc<StreamProgress>,
}

impl<S> TimedStream<S> {
    /// Records in `progress` what passes.
    pub(crate) fn new(stream: S, write_timeout: WriteTimeout, progress: Arc<StreamProgress>) -> Self {
        Self { stream, write_timeout, writes: IoTurn::default(), progress }
    }

    pub(super) fn inner_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Ready when the connection may write.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let turn = self.writes.poll(context);
        if turn.is_pending() {
            self.progress.is_writing.store(true, Ordering::Relaxed);
        }
        turn
    }

    /// The result of a write, within the time limit.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.progress.is_writing.store(polled.is_pending(), Ordering::Relaxed);
        match polled {
            Poll::Ready(Ok(count @ 1..)) => {
                self.writes.add(count);
                self.progress.writes.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Ready(_) => {}
            Poll::Pending => self.writes.rest(),
        }
        self.write_timeout.check_write(context, polled)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.progress.has_read.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.progress.is_writing.store(polled.is_pending(), Ordering::Relaxed);
        self.write_timeout.check_flush(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.write_timeout.check_flush(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn timed<S>(stream: S, limit: Option<Duration>, drain: Drain) -> TimedStream<S> {
        TimedStream::new(stream, WriteTimeout::new(limit, drain), Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_the_end_of_the_server_ends_the_wait() {
        let (_client, server) = duplex(64);
        let drain = Drain::new();
        let mut server = timed(server, None, drain.clone());
        let mut writing = tokio::spawn(async move { server.write_all(&[0; 65]).await });
        assert!(tokio::time::timeout(LIMIT, &mut writing).await.is_err());
        drain.begin();
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_ends_the_connection() {
        let (_client, server) = duplex(64);
        let mut server = timed(server, Some(LIMIT), Drain::new());
        let begin = tokio::time::Instant::now();
        let error = server.write_all(&[0; 65]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= LIMIT && begin.elapsed() < 2 * LIMIT);
    }

    #[tokio::test]
    async fn a_client_that_takes_more_and_more_lets_others_have_their_turn() {
        let mut server = timed(tokio::io::sink(), Some(LIMIT), Drain::new());
        for _ in 0..3 {
            let writes = (0..1000).map_while(|_| server.write(&[0; 64 << 10]).now_or_never());
            let written: usize = writes.map(Result::unwrap).sum();
            assert_eq!(written, 1 << 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_goes_on_as_long_as_it_takes_something() {
        let (mut client, server) = duplex(64);
        let mut server = timed(server, Some(LIMIT), Drain::new());
        let writing = tokio::spawn(async move { server.write_all(&[0; 300]).await });
        let mut taken = 0;
        while taken < 300 {
            tokio::time::sleep(LIMIT / 2).await;
            taken += client.read(&mut [0; 30]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }
}
