//! Limits how often a client may send which frames. Pure rules: the time is an argument.
//!
//! h2 bounds what a client can make it store: open streams, header blocks, resets of streams that were not accepted
//! yet. h2 does not bound work: a client may open and reset streams for ever, or send frames without content. These
//! rules bound that work. They do not limit work for requests that the server answers.
//!
//! Pings follow gRPC's own rule, so that the options of gRPC mean the same as in Triton. Source: grpc, doc/keepalive.md
//! and ping_abuse_policy.cc.
use std::time::{Duration, Instant};

use super::frames::{FrameHead, FrameKind};

/// The reason why the server ends a connection: the client has done something too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameFlood {
    /// The text for the client in the GOAWAY frame. Clients know "too_many_pings" and afterwards ping less often.
    pub(super) reason: &'static str,
}

/// The ping rule of gRPC (`--grpc-http2-min-recv-ping-interval-without-data`, `--grpc-http2-max-ping-strikes`,
/// `--grpc-keepalive-permit-without-calls`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingRules {
    /// A ping is a strike if it comes sooner than this after the previous ping. If the server sends a frame in between,
    /// the strikes start again from zero.
    pub min_interval: Duration,
    /// More strikes than this end the connection. 0 allows any number.
    pub max_strikes: u32,
    /// If true, pings on connections without calls must keep `min_interval`, too. Otherwise they must keep an interval
    /// of two hours.
    pub permit_without_calls: bool,
}

/// The minimum interval of pings on a connection without calls, unless such pings are permitted.
const IDLE_PING_INTERVAL: Duration = Duration::from_secs(2 * 3600);

impl Default for PingRules {
    fn default() -> Self {
        Self { min_interval: Duration::from_secs(300), max_strikes: 2, permit_without_calls: false }
    }
}

/// How many frames without content a client may send at once, and in each second: SETTINGS, PRIORITY, empty DATA,
/// CONTINUATION, pings, and frames of unknown kinds. Each frame that belongs to a call allows one more.
const EMPTY_FRAMES: u32 = 1000;
const EMPTY_FRAMES_PER_SECOND: f64 = 100.0;

/// How many streams a client may reset in each second, in addition to those that it may reset at once. Each answered
/// call allows one more.
const RESETS_PER_SECOND: f64 = 200.0;

/// Checks the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameRateLimits {
    pings: PingRules,
    resets: Allowance,
    empty: Allowance,
    strikes: u32,
    last_ping: Option<Instant>,
}

impl FrameRateLimits {
    /// `resets` is the number of streams that the client may reset at once.
    pub(super) fn new(pings: PingRules, resets: u32, now: Instant) -> Self {
        Self {
            pings,
            resets: Allowance::new(resets, RESETS_PER_SECOND, now),
            empty: Allowance::new(EMPTY_FRAMES, EMPTY_FRAMES_PER_SECOND, now),
            strikes: 0,
            last_ping: None,
        }
    }

    /// Counts a frame from the client. `calls` is the number of calls in flight. `now` is called only where the time
    /// matters.
    ///
    /// # Errors
    /// The client has sent too many frames of this kind.
    pub(super) fn received(
        &mut self,
        frame: FrameHead,
        calls: usize,
        now: impl Fn() -> Instant,
    ) -> Result<(), FrameFlood> {
        match frame.kind {
            FrameKind::Data if frame.len > 0 || frame.ends_stream() => self.empty.earn(),
            FrameKind::Headers => self.empty.earn(),
            FrameKind::WindowUpdate | FrameKind::GoAway => {}
            FrameKind::Settings | FrameKind::Ping if frame.is_ack() => {}
            FrameKind::Ping => {
                let now = now();
                self.ping(calls, now)?;
                return self.empty.spend(now, "too_many_pings");
            }
            FrameKind::Reset => return self.resets.spend(now(), "too_many_resets"),
            FrameKind::Data | FrameKind::Priority | FrameKind::Settings => {
                return self.empty.spend(now(), "too_many_empty_frames");
            }
            FrameKind::Continuation | FrameKind::Other => {
                return self.empty.spend(now(), "too_many_empty_frames");
            }
        }
        Ok(())
    }

    /// Counts a frame to the client.
    pub(super) fn sent(&mut self, frame: FrameHead) {
        match frame.kind {
            FrameKind::Data | FrameKind::Headers => {
                self.empty.earn();
                self.forgive_pings();
            }
            FrameKind::WindowUpdate => self.forgive_pings(),
            _ => {}
        }
        if frame.ends_stream() {
            self.resets.earn();
        }
    }

    fn forgive_pings(&mut self) {
        self.strikes = 0;
        self.last_ping = None;
    }

    fn ping(&mut self, calls: usize, now: Instant) -> Result<(), FrameFlood> {
        let apart = if calls == 0 && !self.pings.permit_without_calls {
            IDLE_PING_INTERVAL
        } else {
            self.pings.min_interval
        };
        let last = self.last_ping.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= apart) {
            return Ok(());
        }
        self.strikes = self.strikes.saturating_add(1);
        if self.pings.max_strikes == 0 || self.strikes <= self.pings.max_strikes {
            return Ok(());
        }
        Err(FrameFlood { reason: "too_many_pings" })
    }
}

/// How many frames of a kind may still come. The number grows with time and with finished work, up to a maximum.
#[derive(Debug)]
struct Allowance {
    left: f64,
    most: f64,
    per_second: f64,
    filled: Instant,
}

impl Allowance {
    fn new(most: u32, per_second: f64, now: Instant) -> Self {
        Self { left: f64::from(most), most: f64::from(most), per_second, filled: now }
    }

    fn earn(&mut self) {
        self.left = (self.left + 1.0).min(self.most);
    }

    fn spend(&mut self, now: Instant, reason: &'static str) -> Result<(), FrameFlood> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.most);
        self.filled = now;
        if self.left < 1.0 {
            return Err(FrameFlood { reason });
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, flags: u8, len: u32) -> FrameHead {
        FrameHead { kind, flags, len, stream: 1 }
    }

    const PING: FrameKind = FrameKind::Ping;

    /// Frames come at this time after the start.
    struct Client {
        frame_limits: FrameRateLimits,
        begin: Instant,
    }

    impl Client {
        fn new(pings: PingRules, resets: u32) -> Self {
            let begin = Instant::now();
            Self { frame_limits: FrameRateLimits::new(pings, resets, begin), begin }
        }

        fn sends(&mut self, frame: FrameHead, calls: usize, secs: u64) -> Result<(), FrameFlood> {
            let now = self.begin + Duration::from_secs(secs);
            self.frame_limits.received(frame, calls, || now)
        }
    }

    #[test]
    fn early_pings_are_strikes_until_the_server_sends_something() {
        let mut client = Client::new(PingRules::default(), 10);
        let ping = frame(PING, 0, 8);
        for secs in 0..3 {
            assert_eq!(client.sends(ping, 1, secs), Ok(()));
        }
        client.frame_limits.sent(frame(FrameKind::Data, 0, 5));
        for secs in 3..6 {
            assert_eq!(client.sends(ping, 1, secs), Ok(()));
        }
        assert_eq!(client.sends(ping, 1, 6), Err(FrameFlood { reason: "too_many_pings" }));
    }

    #[test]
    fn pings_that_are_far_enough_apart_are_no_strikes() {
        let mut client = Client::new(PingRules::default(), 10);
        for round in 0..100 {
            assert_eq!(client.sends(frame(PING, 0, 8), 1, round * 300), Ok(()));
        }
    }

    #[test]
    fn a_connection_without_calls_may_ping_less_often_unless_that_is_permitted() {
        let ping_hourly = |permit_without_calls| {
            let mut client = Client::new(PingRules { permit_without_calls, ..PingRules::default() }, 10);
            (0..4).try_for_each(|hour| client.sends(frame(PING, 0, 8), 0, hour * 3600))
        };
        assert!(ping_hourly(true).is_ok());
        assert!(ping_hourly(false).is_err());
    }

    #[test]
    fn without_strikes_pings_are_counted_as_frames_without_content() {
        let mut client = Client::new(PingRules { max_strikes: 0, ..PingRules::default() }, 10);
        let sent = (0..10_000).take_while(|_| client.sends(frame(PING, 0, 8), 0, 0).is_ok()).count();
        assert_eq!(sent, EMPTY_FRAMES as usize);
        assert!(client.sends(frame(PING, 0, 8), 0, 1).is_ok(), "the allowance fills with time");
        assert!(client.sends(frame(PING, 1, 8), 0, 1).is_ok(), "answers to the server's pings are free");
    }

    #[test]
    fn resets_are_allowed_as_far_as_calls_are_answered() {
        let mut client = Client::new(PingRules::default(), 10);
        let reset = frame(FrameKind::Reset, 0, 4);
        let sent = (0..100).take_while(|_| client.sends(reset, 0, 0).is_ok()).count();
        assert_eq!(sent, 10);
        for _ in 0..1000 {
            client.frame_limits.sent(frame(FrameKind::Headers, 0x5, 20));
            assert!(client.sends(reset, 0, 0).is_ok());
        }
        assert_eq!(client.sends(reset, 0, 0), Err(FrameFlood { reason: "too_many_resets" }));
    }

    #[test]
    fn frames_without_content_are_limited_but_not_those_of_calls() {
        use FrameKind::{Continuation, Data, Headers, Other, Priority, Settings, WindowUpdate};
        for empty in [Data, Continuation, Other, Priority, Settings] {
            let mut client = Client::new(PingRules::default(), 10);
            let sent = (0..10_000).take_while(|_| client.sends(frame(empty, 0, 0), 0, 0).is_ok()).count();
            assert_eq!(sent, EMPTY_FRAMES as usize, "{empty:?}");
        }
        let mut client = Client::new(PingRules::default(), 10);
        for _ in 0..10_000 {
            for frame in
                [frame(Headers, 4, 9), frame(Data, 0, 9), frame(Data, 1, 0), frame(WindowUpdate, 0, 4)]
            {
                assert_eq!(client.sends(frame, 1, 0), Ok(()));
            }
        }
    }
}
