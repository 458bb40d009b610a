//! The minimum pace at which a request body must arrive.
use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{client_timeout::ClientTimeout, client_timer::ClientTimer, drain::Drain};

/// The minimum pace of a body: in each period at least `min_bytes` bytes or the end of the body must arrive. No
/// invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyPace {
    /// The length of one period.
    pub period: Duration,
    /// The bytes that must arrive in each period.
    pub min_bytes: u64,
}

/// Why the server waits no longer for a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateBody {
    /// It is slower than the minimum pace.
    TooSlow,
    /// The server stops.
    Stopping,
}

/// Measures the arrival of one body. The timers start with the first wait, so a body that has arrived already costs
/// nothing.
#[derive(Debug)]
pub(crate) struct BodyProgress {
    pace: Option<BodyPace>,
    /// The bytes that arrived in this period.
    arrived: u64,
    timer: Option<ClientTimer>,
    drain: Drain,
    /// Ends when the server stops, however fast the body arrives.
    timeout: Option<ClientTimeout>,
}

impl BodyProgress {
    /// The progress of a body that has not begun to arrive. With `None` the body is never too slow. `drain` is that of
    /// its port.
    pub(crate) fn new(pace: Option<BodyPace>, drain: &Drain) -> Self {
        Self { pace, arrived: 0, timer: None, drain: drain.clone(), timeout: None }
    }

    /// Counts arrived bytes of the body.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.arrived = self.arrived.saturating_add(bytes as u64);
    }

    /// Drops the current period, because the server does not read from the client, or another body begins.
    pub(crate) fn stop(&mut self) {
        self.arrived = 0;
        self.timer = None;
        self.timeout = None;
    }

    /// Ready when the server waits no longer. The caller polls it while the body is pending.
    pub(crate) fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<LateBody> {
        if self.poll_too_slow(context).is_ready() {
            return Poll::Ready(LateBody::TooSlow);
        }
        let timeout = self.timeout.get_or_insert_with(|| ClientTimeout::new(None, &self.drain));
        timeout.poll(context).map(|()| LateBody::Stopping)
    }

    fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(pace) = self.pace else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| ClientTimer::new(pace.period));
        loop {
            ready!(timer.poll(context));
            if self.arrived < pace.min_bytes {
                return Poll::Ready(());
            }
            self.arrived = 0;
            timer.restart();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn progress() -> BodyProgress {
        BodyProgress::new(Some(BodyPace { period: PERIOD, min_bytes: 100 }), &Drain::new())
    }

    async fn too_slow(progress: &mut BodyProgress) -> Duration {
        let begin = Instant::now();
        assert_eq!(poll_fn(|context| progress.poll_late(context)).await, LateBody::TooSlow);
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_must_make_progress_in_each_period() {
        let mut progress = progress();
        progress.add(100);
        // Enough bytes arrive in the first period, and none in the second.
        let waited = too_slow(&mut progress).await;
        assert!(waited >= 2 * PERIOD && waited < 3 * PERIOD, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_byte_by_byte_is_too_slow() {
        let mut progress = progress();
        progress.add(99);
        assert!(too_slow(&mut progress).await < 2 * PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_watch_begins_anew() {
        let mut progress = progress();
        assert!(poll_fn(|context| Poll::Ready(progress.poll_late(context))).await.is_pending());
        tokio::time::advance(PERIOD * 3).await;
        progress.stop();
        assert!(too_slow(&mut progress).await >= PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_pace_nothing_is_too_slow() {
        let mut progress = BodyProgress::new(None, &Drain::new());
        tokio::time::advance(PERIOD * 1000).await;
        assert!(poll_fn(|context| Poll::Ready(progress.poll_late(context))).await.is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_waits_for_no_body_however_fast_it_comes() {
        let drain = Drain::new();
        let mut progress = BodyProgress::new(None, &drain);
        let late = poll_fn(|context| {
            progress.add(1000);
            progress.poll_late(context)
        });
        let mut late = std::pin::pin!(late);
        assert!(tokio::time::timeout(PERIOD * 1000, &mut late).await.is_err());
        drain.begin();
        assert_eq!(late.await, LateBody::Stopping);
    }
}
