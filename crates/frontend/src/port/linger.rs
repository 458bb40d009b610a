//! Closes a connection whose client may still send.
//!
//! If a socket closes with bytes that nobody has read, the system resets the connection, and the reset takes the answer from a
//! client that has not read it yet. So the server closes its sending side, and reads and drops what comes until the client
//! closes, too. A client that sends nothing for [`SILENCE`], or that sends for longer than [`LINGER`], is not waited for, and
//! neither is any client once the server has stopped for [`DRAIN_TIMEOUT`]. All connections together read no faster than
//! [`TURN`] bytes in each [`TICK`], so a flood of such clients takes little time from others. They keep no bytes.
use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::LazyLock,
    task::{Poll, ready},
    time::Duration,
};

use inference::lock::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{client_timeout::DRAIN_TIMEOUT, drain::Drain};

/// How long the server reads on for one client.
const LINGER: Duration = Duration::from_secs(60);

/// How long a client may send nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// The bytes that a connection reads before the others have their turn.
const TURN: usize = 256 << 10;

/// The time from one turn to the next.
const TICK: Duration = Duration::from_millis(1);

/// The bytes of one read. They lie on the stack.
const PIECE: usize = 16 << 10;

/// When the next turn begins.
static NEXT_TURN: LazyLock<Mutex<Instant>> = LazyLock::new(|| Mutex::new(Instant::now()));

/// Closes the sending side of a connection, and reads and drops what the client still sends, within the limits of this
/// module and until the server stops.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, drain: &Drain) {
    let stopped = async {
        drain.begun().await;
        sleep_until(drain.begun_at() + DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        _ = discard(stream) => {}
        () = stopped => {}
        () = sleep(LINGER) => {}
    }
}

/// As [`linger`], without a limit for the whole.
///
/// # Errors
/// Those of the connection.
pub(super) async fn discard<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    loop {
        turn().await;
        let mut read = 0;
        while read < TURN {
            match timeout(SILENCE, read_and_drop(stream)).await {
                Ok(Ok(count @ 1..)) => read += count,
                Ok(Ok(0)) | Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

/// Waits for the turn of a connection.
async fn turn() {
    let turn = {
        let mut next = NEXT_TURN.lock();
        let turn = Instant::now().max(*next);
        *next = turn + TICK;
        turn
    };
    sleep_until(turn).await;
}

/// Reads once. Returns the number of bytes; 0 at the end.
async fn read_and_drop<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<usize> {
    poll_fn(|context| {
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut piece))?;
        Poll::Ready(Ok(piece.filled().len()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use tokio::{
        io::{AsyncReadExt, DuplexStream, duplex},
        task::JoinHandle,
    };

    use super::*;

    /// A client and the server's end of its connection.
    fn connected() -> (DuplexStream, DuplexStream) {
        duplex(64 << 10)
    }

    /// Sends until the server takes nothing more, and counts what was sent. Without a pause, as fast as the server reads.
    fn endless(mut client: DuplexStream, pause: Option<Duration>) -> (Arc<AtomicUsize>, JoinHandle<()>) {
        let sent = Arc::<AtomicUsize>::default();
        let counted = sent.clone();
        let sending = tokio::spawn(async move {
            while client.write_all(&[0; PIECE]).await.is_ok() {
                counted.fetch_add(PIECE, Relaxed);
                if let Some(pause) = pause {
                    sleep(pause).await;
                }
            }
        });
        (sent, sending)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_answer_when_it_has_sent_everything() {
        let (mut client, mut server) = connected();
        let lingering = tokio::spawn(async move {
            server.write_all(b"answer").await.unwrap();
            linger(&mut server, &Drain::new()).await;
        });
        client.write_all(&vec![0; 5 << 20]).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        assert!(!lingering.is_finished(), "the client may send more");
        drop(client);
        lingering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_not_waited_for() {
        let (_client, mut server) = connected();
        let begin = Instant::now();
        linger(&mut server, &Drain::new()).await;
        assert_eq!(begin.elapsed().as_secs(), SILENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn endless_and_slow_clients_end() {
        for pause in [SILENCE / 50, SILENCE / 2] {
            let (client, mut server) = connected();
            let (_, sending) = endless(client, Some(pause));
            let begin = Instant::now();
            linger(&mut server, &Drain::new()).await;
            assert_eq!(begin.elapsed().as_secs(), LINGER.as_secs());
            drop(server);
            sending.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_clients_together_have_one_pace() {
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let (client, mut server) = connected();
                let (sent, _) = endless(client, None);
                tokio::spawn(async move { linger(&mut server, &Drain::new()).await });
                sent
            })
            .collect();
        let ticks = 200;
        sleep(TICK * ticks).await;
        let sent: Vec<_> = clients.iter().map(|sent| sent.load(Relaxed)).collect();
        // Beside their turns, each has a full buffer on its way.
        let most = (ticks as usize + 1) * (TURN + PIECE) + clients.len() * (128 << 10);
        assert!(sent.iter().sum::<usize>() <= most, "{sent:?}");
        let fair = ticks as usize / clients.len() / 2 * TURN;
        assert!(sent.iter().all(|sent| *sent >= fair), "{sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_waits_briefly() {
        let (client, mut server) = connected();
        let (_, sending) = endless(client, Some(SILENCE / 50));
        let drain = Drain::new();
        let lingering = tokio::spawn({
            let drain = drain.clone();
            async move { linger(&mut server, &drain).await }
        });
        sleep(SILENCE).await;
        assert!(!lingering.is_finished());
        let begin = Instant::now();
        drain.begin();
        lingering.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), DRAIN_TIMEOUT.as_secs());
        sending.await.unwrap();
    }
}
