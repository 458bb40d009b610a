//! Connections that were accepted while the accept loop waited for its turn.
//!
//! The system keeps a few thousand connections that wait to be accepted, and drops what comes then: such a client tries again
//! after a second. In a burst, the tasks of thousands of connections would have their turns before the accept loop has its
//! next one. So each accepts all that wait before it begins.
use std::{collections::VecDeque, io};

use inference::lock::Mutex;
use tokio::sync::Notify;

use super::{
    permits::ConnectionPermits,
    stream::{AcceptedStream, AcceptingListener, ClientStream, WaitingConnections},
};

/// The most connections that wait for the accept loop, if there are permits for them. More wait in the system.
const MOST_ACCEPTED: usize = 16 << 10;

/// The connections of one listener that wait for the accept loop.
pub(super) struct AcceptQueue {
    listener: WaitingConnections,
    /// Those of the port, which the accept loop takes.
    permits: ConnectionPermits,
    /// `None` after the beginning of the drain.
    accepted: Mutex<Option<VecDeque<AcceptedStream>>>,
    arrived: Notify,
}

impl AcceptQueue {
    pub(super) fn of(listener: &AcceptingListener, permits: ConnectionPermits) -> io::Result<Self> {
        let accepted = Mutex::new(Some(VecDeque::new()));
        Ok(Self { listener: listener.waiting()?, permits, accepted, arrived: Notify::new() })
    }

    /// Accepts all connections that wait in the system, as far as there are permits for them.
    pub(super) fn accept_waiting(&self) {
        let most = self.permits.free().min(MOST_ACCEPTED);
        // If another thread is doing this, it also finds what this one would find.
        let Some(mut accepted) = self.accepted.try_lock() else { return };
        let Some(accepted) = &mut *accepted else { return };
        let before = accepted.len();
        // The accept loop meets an error, too, and tells it.
        while accepted.len() < most
            && let Ok(stream) = self.listener.accept()
        {
            accepted.push_back(stream);
        }
        if accepted.len() > before {
            self.arrived.notify_one();
        }
    }

    /// The next connection. Waits for one. May be dropped at any time: nothing is lost. Must be called in a runtime.
    pub(super) async fn next(&self) -> io::Result<ClientStream> {
        loop {
            let next = self.accepted.lock().as_mut().and_then(VecDeque::pop_front);
            match next {
                Some(stream) => return stream.in_runtime(),
                None => self.arrived.notified().await,
            }
        }
    }

    /// The connections that have been accepted, and at most `most` of those that wait in the system. No further ones are
    /// accepted. Must be called in a runtime.
    pub(super) fn close(&self, most: usize) -> impl Iterator<Item = io::Result<ClientStream>> {
        let accepted = self.accepted.lock().take().unwrap_or_default();
        let waiting = (0..most).map_while(|_| self.listener.accept().ok());
        accepted.into_iter().chain(waiting).map(AcceptedStream::in_runtime)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use futures_util::FutureExt;

    use super::{
        super::{listen::Listener, permits::ConnectionCounter},
        *,
    };

    #[tokio::test]
    async fn what_waits_is_accepted_at_once_and_nothing_after_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |count| (0..count).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>();
        let listener = AcceptingListener::new(Listener::Tcp(listener)).unwrap();
        let counter = ConnectionCounter::new(30, None);
        let queue = AcceptQueue::of(&listener, ConnectionPermits::new([counter])).unwrap();
        assert!(queue.next().now_or_never().is_none());

        let first = connect(20);
        queue.accept_waiting();
        for client in &first {
            let accepted = queue.next().now_or_never().unwrap().unwrap();
            assert_eq!(accepted.peer(), Some(client.local_addr().unwrap()));
        }
        assert!(queue.next().now_or_never().is_none());

        let mut accepted = connect(29);
        queue.accept_waiting();
        // There are permits for 30.
        accepted.extend(connect(1));
        let waiting = connect(5);
        queue.accept_waiting();
        assert_eq!(queue.close(3).count(), accepted.len() + 3);
        queue.accept_waiting();
        assert!(queue.next().now_or_never().is_none());
        assert_eq!(queue.close(9).count(), waiting.len() - 3);
    }
}
