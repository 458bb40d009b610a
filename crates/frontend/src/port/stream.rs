//! The two kinds of connections: TCP, and the sockets of the file system.
use std::{
    io,
    mem::MaybeUninit,
    net::{self, SocketAddr},
    os::{fd::AsFd, unix},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

use super::{listen::Listener, unix_socket::SocketFile};

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum ClientStream {
    /// With the address of the client.
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// A listener in the runtime.
pub(super) enum AcceptingListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// The file is removed when the listener closes.
        _file: SocketFile,
    },
}

impl AcceptingListener {
    /// Must be called in a runtime.
    pub(super) fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener)?)
            }
            Listener::Unix(listener, file) => {
                listener.set_nonblocking(true)?;
                Self::Unix { listener: UnixListener::from_std(listener)?, _file: file }
            }
        })
    }

    /// The next connection. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<ClientStream> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(stream, peer)| ClientStream::Tcp(stream, peer))
            }
            Self::Unix { listener, .. } => {
                listener.accept().await.map(|(stream, _)| ClientStream::Unix(stream))
            }
        }
    }

    /// A second handle of the listener, for connections that wait.
    pub(super) fn waiting(&self) -> io::Result<WaitingConnections> {
        let descriptor = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        };
        let descriptor = descriptor.try_clone_to_owned()?;
        Ok(match self {
            Self::Tcp(_) => WaitingConnections::Tcp(descriptor.into()),
            Self::Unix { .. } => WaitingConnections::Unix(descriptor.into()),
        })
    }
}

/// The connections of a listener that the system has established, and that have not been accepted. It does not wait for new
/// ones.
pub(super) enum WaitingConnections {
    Tcp(net::TcpListener),
    Unix(unix::net::UnixListener),
}

/// An accepted connection that no runtime knows yet.
pub(super) enum AcceptedStream {
    Tcp(net::TcpStream, SocketAddr),
    Unix(unix::net::UnixStream),
}

impl WaitingConnections {
    /// The next one. An error if there is none.
    pub(super) fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, peer)| AcceptedStream::Tcp(stream, peer)),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| AcceptedStream::Unix(stream)),
        }
    }
}

impl AcceptedStream {
    /// Must be called in a runtime.
    pub(super) fn in_runtime(self) -> io::Result<ClientStream> {
        match self {
            Self::Tcp(stream, peer) => {
                stream.set_nonblocking(true)?;
                Ok(ClientStream::Tcp(TcpStream::from_std(stream)?, peer))
            }
            Self::Unix(stream) => {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream).map(ClientStream::Unix)
            }
        }
    }
}

impl ClientStream {
    /// The address of the client, if it has one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, peer) => Some(*peer),
            Self::Unix(_) => None,
        }
    }

    /// Sends small writes at once. If the machine of the client acknowledges nothing for `write_timeout`, the system ends the
    /// connection: a write that the system has taken is not one that the client has.
    pub(crate) fn prepare(&self, write_timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream, _) => {
                stream.set_nodelay(true)?;
                match write_timeout {
                    None => Ok(()),
                    limit @ Some(_) => SockRef::from(stream).set_tcp_user_timeout(limit),
                }
            }
            // These sockets never wait for more bytes, and have no network.
            Self::Unix(_) => Ok(()),
        }
    }

    /// Ready when there is something to read. True if the client has sent its last, which may still be unread.
    pub(super) fn poll_end(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let (ready, peeked) = match self {
                Self::Tcp(stream, _) => {
                    ready!(stream.poll_read_ready(context))?;
                    let peeked = stream.try_io(Interest::READABLE, || peek(&SockRef::from(stream)));
                    (stream.ready(Interest::READABLE).now_or_never(), peeked)
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_read_ready(context))?;
                    let peeked = stream.try_io(Interest::READABLE, || peek(&SockRef::from(stream)));
                    (stream.ready(Interest::READABLE).now_or_never(), peeked)
                }
            };
            match (ready, peeked) {
                (Some(Ok(ready)), _) if ready.is_read_closed() => return Poll::Ready(Ok(true)),
                // Nothing has come since the last read.
                (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (_, peeked) => return Poll::Ready(peeked.map(|()| false)),
            }
        }
    }
}

/// Looks for a byte. The end is none: the runtime tells it.
fn peek(socket: &SockRef<'_>) -> io::Result<()> {
    match socket.peek(&mut [MaybeUninit::uninit()])? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream, _) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
