//! Whether a client has sent something, without a buffer to read it into.
use std::task::{Context, Poll};

use tokio_rustls::server::TlsStream;

use super::{half_close::HalfCloseStream, write_timeout::TimedStream};

/// A stream of a client.
pub(crate) trait Readable {
    /// Ready when there is something to read, or the connection has ended.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

impl Readable for HalfCloseStream {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_unread(context)
    }
}

impl<S: Readable> Readable for TlsStream<S> {
    /// What has been read and not been taken is not looked at: the task of a connection takes all before it waits.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll_readable(context)
    }
}

impl<S: Readable> Readable for TimedStream<S> {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.inner_mut().poll_readable(context)
    }
}
