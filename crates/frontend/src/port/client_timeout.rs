//! How long the server waits for a client: as long as the limit of the client says, and briefly once the server stops.
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{client_timer::ClientTimer, drain::Drain};

/// From the drain on, how long the server waits for a client that has no accepted request, or that does not read its
/// answer. What is under way at the begin of the drain arrives within a round trip, and a lost packet is sent again
/// within a second. A client that takes longer may have gone: a stop that waited for it would take the whole exit
/// timeout, and end with an error although no request is lost. With the end of the process, a stop takes two seconds.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(1500);

/// One wait for a client. It begins with the first poll.
pub(crate) struct ClientTimeout(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl ClientTimeout {
    /// Ends after `limit`, and [`DRAIN_TIMEOUT`] after the drain has begun, or after the first poll if that is later.
    /// `None` is no limit of the client.
    pub(crate) fn new(limit: Option<Duration>, drain: &Drain) -> Self {
        let drain = drain.clone();
        let last = async move {
            let first_poll = Instant::now();
            drain.begun().await;
            sleep_until(drain.begun_at().max(first_poll) + DRAIN_TIMEOUT).await;
        };
        Self(match limit {
            None => Box::pin(last),
            Some(limit) => Box::pin(async move {
                let mut timer = ClientTimer::new(limit);
                tokio::select! {
                    () = poll_fn(|context| timer.poll(context)) => {}
                    () = last => {}
                }
            }),
        })
    }

    /// Ready when the wait is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for ClientTimeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientTimeout")
    }
}

/// Returns when the server stops and the connection does nothing for it: for [`DRAIN_TIMEOUT`] it has had no accepted
/// request, and has taken nothing. `is_busy` tells whether it has a request, and `sent` counts what the client takes.
pub(crate) async fn idle_while_draining(drain: &Drain, is_busy: impl Fn() -> bool, sent: impl Fn() -> usize) {
    drain.begun().await;
    let mut seen = sent();
    let mut next_look = drain.begun_at() + DRAIN_TIMEOUT;
    loop {
        sleep_until(next_look).await;
        let now = sent();
        if !is_busy() && now == seen {
            return;
        }
        seen = now;
        next_look = Instant::now() + DRAIN_TIMEOUT;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    async fn waited(mut timeout: ClientTimeout) -> Duration {
        let begin = Instant::now();
        poll_fn(|context| timeout.poll(context)).await;
        begin.elapsed()
    }

    /// Whole seconds, because the timer of the runtime is not exact.
    fn is_about(waited: Duration, expected: Duration) -> bool {
        waited.as_secs() == expected.as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_limit_until_the_server_stops() {
        let drain = Drain::new();
        assert!(is_about(waited(ClientTimeout::new(Some(LIMIT), &drain)).await, LIMIT));
        drain.announce();
        assert!(is_about(waited(ClientTimeout::new(Some(LIMIT), &drain)).await, LIMIT));
        let waiting = [Some(LIMIT), None].map(|limit| waited(ClientTimeout::new(limit, &drain)));
        let (waited_both, ()) = tokio::join!(join_all(waiting), async { drain.begin() });
        assert!(waited_both.into_iter().all(|waited| is_about(waited, DRAIN_TIMEOUT)));
        assert!(is_about(waited(ClientTimeout::new(None, &drain)).await, DRAIN_TIMEOUT));
        let short = Duration::from_secs(1);
        assert!(is_about(waited(ClientTimeout::new(Some(short), &drain)).await, short));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_drains_after_others_gives_its_clients_no_time_of_its_own() {
        let (drain, second) = (Drain::new(), Duration::from_secs(1));
        let mut still = Box::pin(waited(ClientTimeout::new(Some(LIMIT), &drain)));
        assert!(tokio::time::timeout(DRAIN_TIMEOUT, &mut still).await.is_err(), "the server does not stop");
        let mut alone = Box::pin(idle_while_draining(&drain, || false, || 0));
        drain.begin_since(Instant::now() - second);
        let begin = Instant::now();
        alone.as_mut().await;
        assert!(is_about(begin.elapsed(), DRAIN_TIMEOUT - second));
        assert!(is_about(still.await, DRAIN_TIMEOUT + second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_left_alone_when_it_has_no_request_and_takes_nothing() {
        let drain = Drain::new();
        let (is_busy, sent) = (Cell::new(true), Cell::new(0));
        let mut alone = Box::pin(idle_while_draining(&drain, || is_busy.get(), || sent.get()));
        let mut is_alone = async |time| tokio::time::timeout(time, &mut alone).await.is_ok();
        assert!(!is_alone(LIMIT).await, "the server does not stop");
        drain.begin();
        assert!(!is_alone(LIMIT).await, "it has a request");
        is_busy.set(false);
        for _ in 0..10 {
            sent.set(sent.get() + 1);
            assert!(!is_alone(DRAIN_TIMEOUT).await, "it takes its answer");
        }
        advance(Duration::from_millis(1)).await;
        assert!(is_alone(2 * DRAIN_TIMEOUT).await);
    }
}
