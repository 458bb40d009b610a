//! When the repositories are looked at for changes.
use std::time::Duration;

use tokio::time::Instant;
use vocabulary::Error;

use super::command::Done;
use crate::options::Polling;

/// The shortest time between a look and one that a notification causes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// After a look that took long, the server pauses this many times as long before it follows a notification.
const PAUSE_FACTOR: u32 = 10;

/// The looks that are due, and those who wait for one.
pub(super) struct PollingState {
    polling: Polling,
    /// When to look next, if ever.
    next: Option<Instant>,
    /// When the look began that is going on.
    began: Option<Instant>,
    /// Notifications count from here on.
    rested: Option<Instant>,
    /// Something may have changed since the last look began.
    is_hinted: bool,
    waiting: Vec<Done<Result<(), Error>>>,
}

impl PollingState {
    /// Nothing is due before [`looked`](Self::looked) is called for the first time.
    pub(super) fn new(polling: Polling) -> Self {
        Self { polling, next: None, began: None, rested: None, is_hinted: false, waiting: Vec::new() }
    }

    /// Whether notifications cause looks.
    pub(super) fn follows_notifications(&self) -> bool {
        !self.polling.period.is_zero()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// A listing is read from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next = None;
        self.began = Some(now);
        self.is_hinted = false;
    }

    /// A listing has been read. The next one is due after the period, or earlier if a change is about to settle or a
    /// notification has come.
    pub(super) fn looked(&mut self, earlier: Option<Duration>, now: Instant) {
        let cost = self.began.take().map(|began| now - began).unwrap_or_default();
        self.rested = Some(now + SHORTEST_PAUSE.max(cost * PAUSE_FACTOR));
        let period = Some(self.polling.period).filter(|period| !period.is_zero());
        // Without a period, nothing is looked at after the start but what has begun to change.
        let wait = match (period, earlier) {
            (Some(period), Some(earlier)) => Some(period.min(earlier)),
            (period, earlier) => period.or(earlier),
        };
        self.next = wait.map(|wait| now + wait.max(Duration::from_millis(1)));
        if self.is_hinted {
            self.hint(now);
        }
    }

    /// The file system says that something may have changed.
    pub(super) fn hint(&mut self, now: Instant) {
        self.is_hinted = true;
        // Before the end of the first look, and during any look, its end says what follows.
        if let (None, Some(rested), Some(next)) = (self.began, self.rested, self.next) {
            self.next = Some(next.min(rested.max(now)));
        }
    }

    /// Whether something may have changed since the last look began.
    pub(super) fn is_hinted(&self) -> bool {
        self.is_hinted
    }

    /// Somebody waits for a look. Returns whether one must begin.
    pub(super) fn wait(&mut self, done: Done<Result<(), Error>>) -> bool {
        self.waiting.push(done);
        self.began.is_none()
    }

    /// Answers those who wait, unless a listing is still being read.
    pub(super) fn answer(&mut self) {
        if self.began.is_none() {
            for done in self.waiting.drain(..) {
                // The caller may have gone.
                let _ = done.send(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn state() -> PollingState {
        PollingState::new(Polling { period: Duration::from_secs(15), settle: Duration::ZERO })
    }

    #[test]
    fn a_notification_brings_the_next_look_forward_but_leaves_a_pause() {
        let (mut state, start) = (state(), Instant::now());
        state.hint(start);
        assert_eq!(state.next(), None, "the start has not looked yet");
        state.begin(start);
        state.looked(None, start + MS);
        assert_eq!(state.next(), Some(start + Duration::from_secs(15) + MS));
        state.hint(start + 20 * MS);
        assert_eq!(state.next(), Some(start + 101 * MS));
        state.hint(start + 30 * MS);
        assert_eq!(state.next(), Some(start + 101 * MS));
        state.begin(start + 101 * MS);
        state.looked(None, start + 102 * MS);
        assert_eq!(
            state.next(),
            Some(start + Duration::from_secs(15) + 102 * MS),
            "the hint has been followed"
        );
    }

    #[test]
    fn a_notification_during_a_look_causes_another_one_and_long_looks_have_long_pauses() {
        let (mut state, start) = (state(), Instant::now());
        state.begin(start);
        state.hint(start + MS);
        assert_eq!(state.next(), None);
        state.looked(None, start + 300 * MS);
        assert_eq!(state.next(), Some(start + 3300 * MS));
        state.begin(start + 3300 * MS);
        state.hint(start + 3301 * MS);
        state.looked(Some(50 * MS), start + 3302 * MS);
        assert_eq!(state.next(), Some(start + 3352 * MS), "a change settles earlier than the pause ends");
    }
}
