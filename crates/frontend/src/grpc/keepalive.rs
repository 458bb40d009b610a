//! Pings to clients that are silent, to find out whether they are still there.
//!
//! hyper offers the same without two rules of gRPC: a connection without calls is left alone, and so is a client to which
//! nothing was sent since the last pings. The rules are those of gRPC: doc/keepalive.md.
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// When clients are pinged; the names are those of gRPC's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveRules {
    /// A client that has sent nothing for that time is pinged (`--grpc-keepalive-time`); `None` is never.
    pub time: Option<Duration>,
    /// A client that sends nothing for that time after a ping is gone (`--grpc-keepalive-timeout`).
    pub timeout: Duration,
    /// Connections without calls are pinged, too (`--grpc-keepalive-permit-without-calls`).
    pub permit_without_calls: bool,
    /// Pings without data or headers to the client in between (`--grpc-http2-max-pings-without-data`); 0 is any number.
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

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepaliveEvent {
    /// A ping is to be sent.
    Ping,
    /// The last one was not answered.
    ClientIsGone,
}

/// The keep-alive of one connection.
#[derive(Debug)]
pub(super) struct Keepalive {
    rules: KeepaliveRules,
    /// When the client last sent something.
    heard: Instant,
    /// When the ping was sent that is not answered yet.
    asked: Option<Instant>,
    pings_without_data: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Keepalive {
    pub(super) fn new(rules: KeepaliveRules) -> Self {
        Self { rules, heard: Instant::now(), asked: None, pings_without_data: 0, timer: None }
    }

    /// The client has sent something.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Data or headers go to the client.
    pub(super) fn sent_data(&mut self) {
        self.pings_without_data = 0;
    }

    /// Waits for what is due next. `calls` are under way.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, calls: usize) -> Poll<KeepaliveEvent> {
        let Some(time) = self.rules.time else { return Poll::Pending };
        let heard = self.heard;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(heard + time)));
        loop {
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            if let Some(asked) = self.asked.take()
                && heard < asked
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
            self.asked = Some(now);
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

    /// The next event, if it comes before `limit`, and when.
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
    async fn a_silent_client_is_pinged_and_then_given_up() {
        let mut keepalive = keepalive(false);
        assert_eq!(event(&mut keepalive, 1, TIME * 2).await, Some((KeepaliveEvent::Ping, 100)));
        assert_eq!(event(&mut keepalive, 1, TIME * 2).await, Some((KeepaliveEvent::ClientIsGone, 10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_answers_is_pinged_twice_and_again_after_data() {
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
    async fn a_connection_without_calls_is_left_alone_unless_told_otherwise() {
        assert_eq!(event(&mut keepalive(false), 0, TIME * 9).await, None);
        assert_eq!(event(&mut keepalive(true), 0, TIME * 2).await, Some((KeepaliveEvent::Ping, 100)));
    }
}
