//! Tells a client that only sends nothing more from a client that has gone.
//!
//! The end of what a client sends (FIN) may mean both, so the client gets its answer. It has gone when its socket reports an
//! error: the client has reset the connection, or the system has given it up. If a client has closed its connection without a
//! reset, its system sends the reset at the first bytes of an answer. It also sends it at a probe, once it has forgotten the
//! connection: Linux does so after a minute.
use std::{
    fmt, io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::stream::ClientStream;

/// How often the system asks a client that sends nothing more.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// A connection on which the client may send nothing more while it waits for an answer.
///
/// [`poll_flush`](AsyncWrite::poll_flush) fails when the client has gone, and wakes its task then. hyper flushes each time that
/// it waits for an answer, and reads nothing meanwhile.
#[derive(Debug)]
pub(crate) struct HalfCloseStream {
    sending: ClientSending,
}

#[derive(Debug)]
enum ClientSending {
    /// As far as the server knows.
    On(ClientStream),
    Ended(EndedStream),
    /// The client has gone.
    Gone,
}

/// Reads without waiting.
type ReadNow = dyn Fn(&mut [u8]) -> io::Result<usize> + Send;

/// The connection of a client that sends nothing more.
struct EndedStream {
    /// Reads what the client has sent before the end.
    read: Box<ReadNow>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Ends when the client has gone.
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HalfCloseStream {
    /// Over an accepted connection.
    pub(crate) fn new(stream: ClientStream) -> Self {
        Self { sending: ClientSending::On(stream) }
    }

    /// Ready when the client has gone. While bytes of the client wait to be read, its end is only seen when the next write
    /// fails.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let ClientSending::On(stream) = &self.sending {
            let has_ended = ready!(stream.poll_end(context));
            if matches!(has_ended, Ok(false)) {
                return Poll::Pending;
            }
            if let ClientSending::On(stream) = mem::replace(&mut self.sending, ClientSending::Gone)
                && has_ended.is_ok()
            {
                self.sending = ClientSending::Ended(EndedStream::new(stream));
            }
        }
        match &mut self.sending {
            ClientSending::On(_) => Poll::Pending,
            ClientSending::Ended(ended) => ended.gone.as_mut().poll(context),
            ClientSending::Gone => Poll::Ready(()),
        }
    }

    /// Ready when there is something to read, or nothing more will come.
    pub(super) fn poll_unread(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.sending {
            ClientSending::On(stream) => stream.poll_end(context).map(drop),
            ClientSending::Ended(_) | ClientSending::Gone => Poll::Ready(()),
        }
    }

    /// What the server writes to. An error if the client has gone.
    fn writer(&mut self) -> io::Result<Pin<&mut (dyn AsyncWrite + Send + Unpin)>> {
        match &mut self.sending {
            ClientSending::On(stream) => Ok(Pin::new(stream)),
            ClientSending::Ended(ended) => Ok(Pin::new(&mut *ended.writer)),
            ClientSending::Gone => Err(gone()),
        }
    }
}

/// Ends when the client has gone. `ready` waits for what the socket is ready for.
async fn gone_by(ready: impl AsyncFn(Interest) -> io::Result<Ready>) {
    // The system has told whether both directions are closed. Later only an error tells it.
    let now = ready(Interest::READABLE | Interest::WRITABLE).await;
    if now.is_ok_and(|now| !now.is_write_closed()) {
        let _ = ready(Interest::ERROR).await;
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the client has gone")
}

impl EndedStream {
    fn new(stream: ClientStream) -> Self {
        match stream {
            ClientStream::Tcp(stream, _) => {
                let probes = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
                if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&probes) {
                    log::debug!("failed to probe a client that sends nothing more: {error}");
                }
                let (reader, writer) = stream.into_split();
                let reader = Arc::new(reader);
                let watched = reader.clone();
                let gone = gone_by(async move |interest| watched.ready(interest).await);
                Self::of(move |bytes| reader.try_read(bytes), writer, gone)
            }
            ClientStream::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                let reader = Arc::new(reader);
                let watched = reader.clone();
                let gone = gone_by(async move |interest| watched.ready(interest).await);
                Self::of(move |bytes| reader.try_read(bytes), writer, gone)
            }
        }
    }

    fn of(
        read: impl Fn(&mut [u8]) -> io::Result<usize> + Send + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        gone: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { read: Box::new(read), writer: Box::new(writer), gone: Box::pin(gone) }
    }
}

impl fmt::Debug for EndedStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EndedStream")
    }
}

impl AsyncRead for HalfCloseStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.sending {
            ClientSending::On(stream) => Pin::new(stream).poll_read(context, buffer),
            ClientSending::Ended(ended) => {
                let count = (ended.read)(buffer.initialize_unfilled())?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            ClientSending::Gone => Poll::Ready(Err(gone())),
        }
    }
}

impl AsyncWrite for HalfCloseStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer()?.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.sending {
            ClientSending::On(stream) => stream.is_write_vectored(),
            ClientSending::Ended(ended) => ended.writer.is_write_vectored(),
            ClientSending::Gone => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.writer()?.poll_flush(context))?;
        Poll::Ready(match self.poll_gone(context) {
            Poll::Ready(()) => Err(gone()),
            Poll::Pending => Ok(()),
        })
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream, UnixStream},
    };

    use super::*;

    /// A client, and the server's end of its connection.
    async fn connected() -> (TcpStream, HalfCloseStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        (client, HalfCloseStream::new(ClientStream::Tcp(stream, peer)))
    }

    fn unix() -> (UnixStream, HalfCloseStream) {
        let (client, server) = UnixStream::pair().unwrap();
        (client, HalfCloseStream::new(ClientStream::Unix(server)))
    }

    fn reset(client: TcpStream) {
        let client = client.into_std().unwrap();
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Waits as hyper does for an answer, until something has happened.
    async fn wait_until<T>(
        server: &mut HalfCloseStream,
        mut happened: impl FnMut(&HalfCloseStream, io::Result<()>) -> Option<T>,
    ) -> T {
        poll_fn(|context| {
            let flushed = ready!(Pin::new(&mut *server).poll_flush(context));
            happened(server, flushed).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits until the server knows that the client sends nothing more.
    async fn sees_the_end(server: &mut HalfCloseStream) {
        wait_until(server, |server, flushed| {
            flushed.unwrap();
            matches!(server.sending, ClientSending::Ended(_)).then_some(())
        })
        .await;
    }

    async fn sees_the_client_gone(server: &mut HalfCloseStream) -> io::ErrorKind {
        wait_until(server, |_, flushed| flushed.err()).await.kind()
    }

    /// The client reads `word` after it has closed its sending side.
    async fn is_answered<C: AsyncRead + AsyncWrite + Unpin>(
        mut client: C,
        server: &mut HalfCloseStream,
    ) -> C {
        client.shutdown().await.unwrap();
        sees_the_end(server).await;
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        server.write_all(b"word").await.unwrap();
        server.flush().await.unwrap();
        let mut word = [0; 4];
        client.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
        client
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_more_is_answered_until_it_goes() {
        let (client, mut server) = connected().await;
        let client = is_answered(client, &mut server).await;
        reset(client);
        assert_eq!(sees_the_client_gone(&mut server).await, io::ErrorKind::ConnectionReset);
        assert!(server.write_all(b"word").await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_resets_its_connection_has_gone() {
        let (client, mut server) = connected().await;
        reset(client);
        sees_the_client_gone(&mut server).await;
    }

    #[tokio::test]
    async fn a_client_that_has_closed_its_connection_has_gone_at_the_first_bytes() {
        let (client, mut server) = connected().await;
        drop(client);
        sees_the_end(&mut server).await;
        server.write_all(b"word").await.unwrap();
        sees_the_client_gone(&mut server).await;
    }

    #[tokio::test]
    async fn the_system_probes_a_client_that_sends_nothing_more() {
        let (mut client, mut server) = connected().await;
        let ClientSending::On(ClientStream::Tcp(stream, _)) = &server.sending else { panic!("it has begun") };
        let socket = SockRef::from(stream).try_clone().unwrap();
        assert!(!socket.keepalive().unwrap());
        client.shutdown().await.unwrap();
        sees_the_end(&mut server).await;
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_INTERVAL);
    }

    #[tokio::test]
    async fn a_client_over_a_unix_socket_is_answered_and_seen_to_go_at_once() {
        let (client, mut server) = unix();
        is_answered(client, &mut server).await;
        let (client, mut server) = unix();
        drop(client);
        sees_the_client_gone(&mut server).await;
    }

    #[tokio::test]
    async fn what_a_client_has_sent_before_the_end_is_read() {
        let (mut client, mut server) = connected().await;
        client.write_all(b"next").await.unwrap();
        client.shutdown().await.unwrap();
        // The bytes before the end may come alone.
        assert_eq!(server.read(&mut [0]).await.unwrap(), 1);
        while !matches!(server.sending, ClientSending::Ended(_)) {
            server.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"ext");
    }

    #[tokio::test]
    async fn the_limit_of_writes_is_one_of_the_system_too() {
        let (_client, server) = connected().await;
        let ClientSending::On(stream) = &server.sending else { panic!("it has begun") };
        let ClientStream::Tcp(socket, _) = stream else { panic!("it has an address") };
        stream.prepare(None).unwrap();
        assert_eq!(SockRef::from(socket).tcp_user_timeout().unwrap(), None);
        stream.prepare(Some(Duration::from_secs(7))).unwrap();
        assert_eq!(SockRef::from(socket).tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
        assert!(socket.nodelay().unwrap());
    }
}
