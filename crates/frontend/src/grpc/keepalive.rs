//! Sends pings to idle clients, to detect lost connections.
//!
//! hyper offers keep-alive pings, but without two rules of gRPC. First, the server does not ping a connection without
//! calls. Second, the server does not ping a client again if it has sent nothing to the client since the last pings.
//! Source of the rules: gRPC, doc/keepalive.md.
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// When the server pings clients. The names are those of gRPC's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveRules {
    /// The server pings a client that has sent nothing for that time (`--grpc-keepalive-time`). `None`: the server
    /// never pings.
    pub time: Option<Duration>,
    /// If a client sends nothing for that time after a ping, the connection counts as lost
    /// (`--grpc-keepalive-timeout`).
    pub timeout: Duration,
    /// The server also pings connections without calls (`--grpc-keepalive-permit-without-calls`).
    pub permit_without_calls: bool,
    /// How many pings the server may send without data or headers in between (`--grpc-http2-max-pings-without-data`).
    /// 0: any number.
    pub max_pings_without_data: u32,
}

impl Default for KeepaliveRules {
    fn default() -> Self {
        Self {
            time: Some(Duration::from_secs(7200)),
            timeout: Duration::from_secs(20),
            permit_without_calls: false,
            max_pings_without_data: 2,
        }
    }
}

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepaliveEvent {
    /// The server must send a ping.
    Ping,
    /// The client did not answer the last ping in time.
    ClientIsGone,
}

/// The keep-alive of one connection.
#[derive(Debug)]
pub(super) struct Keepalive {
    rules: KeepaliveRules,
    /// The time when the client last sent something.
    heard: Instant,
    /// The time when the server sent the ping that is not answered yet.
    pinged: Option<Instant>,
    pings_without_data: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Keepalive {
    pub(super) fn new(rules: KeepaliveRules) -> Self {
        Self { rules, heard: Instant::now(), pinged: None, pings_without_data: 0, timer: None }
    }

    /// The client has sent something.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The server sends data or headers to the client.
    pub(super) fn sent_data(&mut self) {
        self.pings_without_data = 0;
    }

    /// Waits until the next action is due. `calls` is the number of calls in flight.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, calls: usize) -> Poll<KeepaliveEvent> {
        let Some(time) = self.rules.time else { return Poll::Pending };
        let heard = self.heard;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(heard + time)));
        loop {
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            if let Some(pinged) = self.pinged.take()
                && heard < pinged
            {
                return Poll::Ready(KeepaliveEvent::ClientIsGone);
            }
            if now < heard + time {
                timer.as_mut().reset(heard + time);
                continue;
            }
            let most = self.rules.max_pings_without_data;
            let is_idle = calls == 0 && !self.rules.permit_without_calls;
            if is_idle || (most > 0 && self.pings_without_data >= most) {
                timer.as_mut().reset(now + time);
                continue;
            }
            self.pings_without_data = self.pings_without_data.saturating_add(1);
            self.pinged = Some(now);
            timer.as_mut().reset(now + self.rules.timeout);
            return Poll::Ready(KeepaliveEvent::Ping);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const TIME: Duration = Duration::from_secs(100);
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn keepalive(permit_without_calls: bool) -> Keepalive {
        Keepalive::new(KeepaliveRules {
            time: Some(TIME),
            timeout: TIMEOUT,
            permit_without_calls,
            max_pings_without_data: 2,
        })
    }

    /// The next event before `limit`, and its time.
    async fn event(
        keepalive: &mut Keepalive,
        calls: usize,
        limit: Duration,
    ) -> Option<(KeepaliveEvent, u64)> {
        let begin = Instant::now();
        let event = poll_fn(|context| keepalive.poll(context, calls));
        let event = tokio::time::timeout(limit, event).await.ok()?;
        Some((event, begin.elapsed().as_secs()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_pinged_and_then_disconnected() {
        let mut keepalive = keepalive(false);
        assert_eq!(event(&mut keepalive, 1, TIME * 2).await, Some((KeepaliveEvent::Ping, 100)));
        assert_eq!(event(&mut keepalive, 1, TIME * 2).await, Some((KeepaliveEvent::ClientIsGone, 10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_acknowledges_is_pinged_twice_and_again_after_data() {
        let mut keepalive = keepalive(false);
        for _ in 0..2 {
            assert_eq!(event(&mut keepalive, 1, TIME * 2).await, Some((KeepaliveEvent::Ping, 100)));
            keepalive.heard(Instant::now() + Duration::from_nanos(1));
        }
        assert_eq!(event(&mut keepalive, 1, TIME * 9).await, None);
        keepalive.sent_data();
        assert_eq!(event(&mut keepalive, 1, TIME * 2).await.unwrap().0, KeepaliveEvent::Ping);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_calls_is_pinged_only_if_configured() {
        assert_eq!(event(&mut keepalive(false), 0, TIME * 9).await, None);
        assert_eq!(event(&mut keepalive(true), 0, TIME * 2).await, Some((KeepaliveEvent::Ping, 100)));
    }
}
