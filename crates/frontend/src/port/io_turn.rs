//! Ends the turn of a connection on its thread, so that a client that sends or takes more and more delays no other.
//!
//! A task that wakes itself goes to the end of its thread's queue. That is not enough for the others: the runtime looks at the
//! sockets only after 61 tasks, or when a queue is empty. A few tasks that always have work could keep three threads from
//! seeing other requests for 61 turns of each.
use std::{
    pin::pin,
    task::{Context, Poll},
};

use tokio::task::yield_now;

/// After so many bytes others have their turn: a fraction of a millisecond of copying.
const TURN: usize = 1 << 20;

/// Ends the turn of the current task: it is woken after the tasks that wait, and after a look at the sockets. The caller
/// returns `Pending`.
pub(super) fn yield_turn(context: &mut Context<'_>) {
    // Its first poll gives the waker to the runtime, and the future needs no other.
    let _ = pin!(yield_now()).poll(context);
}

/// The bytes that a connection has read, or written, since it waited last.
#[derive(Debug, Default)]
pub(crate) struct IoTurn {
    bytes: usize,
}

impl IoTurn {
    /// Whether the connection may go on. `Pending` ends its turn.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.bytes < TURN {
            return Poll::Ready(());
        }
        self.bytes = 0;
        yield_turn(context);
        Poll::Pending
    }

    /// So many bytes have passed.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// The connection waits for its client.
    pub(crate) fn rest(&mut self) {
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        io::Write,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use futures_util::FutureExt;
    use tokio::{io::AsyncReadExt, net::UnixStream};

    use super::*;

    #[test]
    fn a_turn_ends_after_its_bytes_unless_the_client_was_waited_for() {
        let mut turn = IoTurn::default();
        let mut goes_on = |bytes, rests: bool| {
            if rests {
                turn.rest();
            }
            turn.add(bytes);
            poll_fn(|context| turn.poll(context)).now_or_never().is_some()
        };
        assert!(goes_on(TURN - 1, false));
        assert!(goes_on(TURN - 1, true));
        assert!(!goes_on(1, false));
        assert!(goes_on(0, false), "the next turn");
    }

    /// The number of turns that a task takes between a byte for another task and that one's turn.
    async fn turns_before_another(end_turn: fn(&mut Context<'_>)) -> usize {
        let turns = Arc::new(AtomicUsize::new(0));
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut server = UnixStream::from_std(server).unwrap();
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            server.read_u8().await.unwrap();
            counted.load(SeqCst)
        });
        // The other task waits for its byte.
        yield_now().await;
        let counted = turns.clone();
        let busy = tokio::spawn(poll_fn(move |context| {
            if counted.fetch_add(1, SeqCst) == 0 {
                client.write_all(b"x").unwrap();
            }
            end_turn(context);
            Poll::<()>::Pending
        }));
        let turns = other.await.unwrap();
        busy.abort();
        turns
    }

    #[tokio::test]
    async fn the_sockets_are_looked_at_between_two_turns() {
        assert!(turns_before_another(|context| context.waker().wake_by_ref()).await > 10);
        assert!(turns_before_another(yield_turn).await <= 3);
    }
}
