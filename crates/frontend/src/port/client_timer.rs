//! A time limit for a client, which a pause of the process does not use up.
//!
//! A process that was stopped (SIGSTOP, a suspended machine) finds its timers expired when it goes on. What clients have sent
//! meanwhile is in its sockets, and nobody has read it. So a timer that fires much too late begins again.
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

/// A timer that fires so much later than it should tells of a pause. Far above the delays of a busy machine.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct ClientTimer {
    limit: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl ClientTimer {
    /// A timer that begins now.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, sleep: Box::pin(sleep(limit)) }
    }

    /// Begins again.
    pub(crate) fn restart(&mut self) {
        self.sleep.as_mut().reset(Instant::now() + self.limit);
    }

    /// Ready when the time is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if self.sleep.deadline().elapsed() < PAUSE {
                return Poll::Ready(());
            }
            self.restart();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    async fn waited(timer: &mut ClientTimer) -> Duration {
        let begin = Instant::now();
        poll_fn(|context| timer.poll(context)).await;
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_longer_than_the_limit_does_not_use_it_up() {
        let mut timer = ClientTimer::new(LIMIT);
        assert!(poll_fn(|context| Poll::Ready(timer.poll(context))).await.is_pending());
        advance(LIMIT + 2 * PAUSE).await;
        assert!(waited(&mut timer).await >= LIMIT);
        // A timer that fires a little late is no pause.
        timer.restart();
        advance(LIMIT + PAUSE / 2).await;
        assert_eq!(waited(&mut timer).await, Duration::ZERO);
    }
}
