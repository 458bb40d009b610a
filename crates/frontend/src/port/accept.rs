//! The accept loop of every port.
use std::{
    io,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use vocabulary::Error;

use super::{
    accept_queue::AcceptQueue,
    drain::Drain,
    freed_memory::connection_has_freed,
    inline_wake::with_inline_wake,
    linger::discard,
    listen::Listener,
    permits::{ConnectionPermits, NoPermit},
    spare_file::SpareFile,
    stream::{AcceptingListener, ClientStream},
};

/// The pause after a failed accept. Most accepts fail because no file descriptors are left. The pause doubles up to
/// [`LONGEST_PAUSE`] while accepts continue to fail.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most connections that are accepted after the beginning of the drain, so that clients who go on connecting do not prevent
/// its end. It is the most that a system usually lets wait.
const MAX_WAITING: usize = u16::MAX as usize;

/// The most refused connections that get an answer at the same time. Further connections are closed without an answer.
const MAX_REFUSALS: usize = 64;

/// About what a connection holds while it is open, with what its protocol keeps.
const BYTES_OF_CONNECTION: usize = 16 << 10;

/// How often the log names a client that has too many connections, and tells that accepts fail.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a refused client may take to read the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// One port.
pub(crate) struct Port {
    /// The name of the port for the log.
    pub(crate) name: &'static str,
    /// Begins when the server stops.
    pub(crate) drain: Drain,
    /// How many connections there may be.
    pub(crate) permits: ConnectionPermits,
    /// The answer to a refused connection. An empty answer sends nothing.
    pub(crate) refusal: fn(NoPermit) -> Vec<u8>,
}

/// Accepts connections until the drain of `port` begins, also those that wait to be accepted at that time.
/// Returns when the last connection has ended. `serve` serves one connection. Dropping the future ends all connections.
///
/// # Errors
/// INTERNAL if the listener cannot be used.
pub(crate) async fn accept<F>(
    listener: Listener,
    port: Port,
    serve: impl Fn(ClientStream) -> F,
) -> Result<(), Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    let unusable = |error| Error::internal(format!("cannot accept connections: {error}"));
    let listener = AcceptingListener::new(listener).map_err(unusable)?;
    let queue = Arc::new(AcceptQueue::of(&listener, port.permits.clone()).map_err(unusable)?);
    let mut accepting = Accepting::new(port);
    accepting.queue = Arc::downgrade(&queue);
    let drain = accepting.port.drain.clone();
    let mut begun = pin!(drain.begun());
    loop {
        // Each branch is cancel-safe.
        tokio::select! {
            biased;
            () = &mut begun => break,
            Some(ended) = accepting.connections.join_next() => accepting.note(ended),
            Some(_) = accepting.refusals.join_next() => { accepting.spare.reopen(); }
            accepted = queue.next() => accepting.take(accepted, &serve),
            accepted = next(&listener, accepting.retry_at) => accepting.take(accepted, &serve),
        }
    }
    // To their clients these connections are open, and may have a request under way.
    queue.close(MAX_WAITING).for_each(|accepted| accepting.take(accepted, &serve));
    drop((queue, listener));
    while let Some(ended) = accepting.connections.join_next().await {
        accepting.note(ended);
    }
    Ok(())
}

async fn next(listener: &AcceptingListener, retry_at: Option<Instant>) -> io::Result<ClientStream> {
    if let Some(retry_at) = retry_at {
        sleep_until(retry_at).await;
    }
    listener.accept().await
}

struct Accepting {
    port: Port,
    queue: Weak<AcceptQueue>,
    connections: JoinSet<()>,
    refusals: JoinSet<()>,
    /// The current pause. Set while accepts fail.
    pause: Option<Duration>,
    /// The earliest time of the next accept.
    retry_at: Option<Instant>,
    /// Closed while there is no descriptor for a connection.
    spare: SpareFile,
    /// True if the latest connection was refused because there were too many.
    is_full: bool,
    /// When the log named a client that has too many connections.
    noted_at: Option<Instant>,
    /// When the log told that an accept has failed.
    failure_noted_at: Option<Instant>,
}

impl Accepting {
    fn new(port: Port) -> Self {
        Self {
            port,
            queue: Weak::new(),
            connections: JoinSet::new(),
            refusals: JoinSet::new(),
            pause: None,
            retry_at: None,
            spare: SpareFile::open(),
            is_full: false,
            noted_at: None,
            failure_noted_at: None,
        }
    }

    fn take<F>(&mut self, accepted: io::Result<ClientStream>, serve: &impl Fn(ClientStream) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) if self.spare.close_for(&error) => return self.note_failure(&error),
            Err(error) => return self.back_off(&error),
        };
        (self.pause, self.retry_at) = (None, None);
        if !self.spare.reopen() {
            return self.refuse(stream, NoPermit::NoDescriptor);
        }
        match self.port.permits.take(stream.peer().map(|peer| peer.ip())) {
            Ok(permit) => {
                self.is_full = false;
                let counted = (permit, self.port.drain.enter());
                // A connection is a large future, and a task and each future around it hold it twice: they get a pointer.
                let served = Box::pin(serve(stream));
                let queue = self.queue.clone();
                self.connections.spawn(with_inline_wake(async move {
                    let _counted = counted;
                    if let Some(queue) = queue.upgrade() {
                        queue.accept_waiting();
                    }
                    served.await;
                    connection_has_freed(BYTES_OF_CONNECTION);
                }));
            }
            Err(no_permit) => self.refuse(stream, no_permit),
        }
    }

    fn refuse(&mut self, stream: ClientStream, no_permit: NoPermit) {
        let name = self.port.name;
        match no_permit {
            NoPermit::Full(limit) => {
                if !std::mem::replace(&mut self.is_full, true) {
                    log::warn!("the {name} port refuses connections: there are {limit} already");
                }
            }
            NoPermit::ClientFull(limit) => self.note_client(&stream, limit),
            // The failure of the accept was noted.
            NoPermit::NoDescriptor => {}
        }
        let answer = (self.port.refusal)(no_permit);
        if self.refusals.len() < MAX_REFUSALS && !answer.is_empty() {
            self.refusals.spawn(answer_and_close(stream, answer, REFUSAL_TIMEOUT));
        }
    }

    /// Others still connect in between, so a line for each time that the limit is reached could fill the log.
    fn note_client(&mut self, stream: &ClientStream, limit: usize) {
        let now = Instant::now();
        if self.noted_at.is_some_and(|noted| now < noted + NOTE_INTERVAL) {
            return;
        }
        self.noted_at = Some(now);
        if let Some(peer) = stream.peer() {
            log::warn!(
                "the {} port refuses connections from {}: the address has {limit} already \
                 (--max-connections-per-address)",
                self.port.name,
                peer.ip()
            );
        }
    }

    /// Says why connections are not accepted, once a minute.
    fn note_failure(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.failure_noted_at.is_none_or(|noted| now >= noted + NOTE_INTERVAL) {
            self.failure_noted_at = Some(now);
            log::warn!("failed to accept a connection on the {} port: {error}", self.port.name);
        }
    }

    fn back_off(&mut self, error: &io::Error) {
        self.note_failure(error);
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        (self.pause, self.retry_at) = (Some(pause), Some(Instant::now() + pause));
    }

    fn note(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            log::error!("a connection of the {} port ended abnormally: {error}", self.port.name);
        }
    }
}

/// Sends `answer` and closes the connection, and reads what the client still sends.
pub(crate) async fn answer_and_close(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl AsRef<[u8]>,
    limit: Duration,
) {
    let delivered = async {
        stream.write_all(answer.as_ref()).await?;
        discard(&mut stream).await
    };
    // The client may keep the connection open or send without end. The server closes it in either case.
    let _ = timeout(limit, delivered).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_are_tried_again_after_longer_and_longer_pauses() {
        let port = Port {
            name: "test",
            drain: Drain::new(),
            permits: ConnectionPermits::unlimited(),
            refusal: |_| Vec::new(),
        };
        let mut accepting = Accepting::new(port);
        let error = io::Error::other("too many open files");
        let pauses: Vec<_> = std::iter::from_fn(|| {
            accepting.back_off(&error);
            accepting.pause
        })
        .take(9)
        .map(|pause| pause.as_millis())
        .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[tokio::test]
    async fn connections_that_wait_when_the_drain_begins_are_accepted_and_later_ones_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::Tcp(listener);
        let waiting: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let drain = Drain::new();
        drain.begin();
        let permits = ConnectionPermits::unlimited();
        let port = Port { name: "test", drain, permits, refusal: |_| Vec::new() };
        let served = std::cell::Cell::new(0);
        let serve = |_| {
            served.set(served.get() + 1);
            async {}
        };
        accept(listener, port, serve).await.unwrap();
        assert_eq!(served.get(), waiting.len());
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
