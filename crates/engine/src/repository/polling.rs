//! When the repositories are looked at for changes.
use std::time::Duration;

use inference::Error;
use tokio::time::Instant;

use super::Done;

/// When the repositories are looked at for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// The interval between two looks; zero means none after the start.
    pub period: Duration,
    /// How long a change must have been the same before it counts.
    pub settle: Duration,
}

/// The looks that are due, and those who wait for one.
pub(super) struct PollingState {
    polling: Polling,
    /// When to look next, if ever.
    next: Option<Instant>,
    /// A listing is being read.
    is_looking: bool,
    waiting: Vec<Done<Result<(), Error>>>,
}

impl PollingState {
    /// Nothing is due before [`looked`](Self::looked) is called for the first time.
    pub(super) fn new(polling: Polling) -> Self {
        Self { polling, next: None, is_looking: false, waiting: Vec::new() }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// A listing is read from now on.
    pub(super) fn begin(&mut self) {
        self.next = None;
        self.is_looking = true;
    }

    /// A listing has been read. The next one is due after the period, or earlier if a change is about to settle.
    pub(super) fn looked(&mut self, earlier: Option<Duration>) {
        self.is_looking = false;
        let period = Some(self.polling.period).filter(|period| !period.is_zero());
        // Without a period, nothing is looked at after the start but what has begun to change.
        let wait = match (period, earlier) {
            (Some(period), Some(earlier)) => Some(period.min(earlier)),
            (period, earlier) => period.or(earlier),
        };
        self.next = wait.map(|wait| Instant::now() + wait.max(Duration::from_millis(1)));
    }

    /// Somebody waits for a look. Returns whether one must begin.
    pub(super) fn wait(&mut self, done: Done<Result<(), Error>>) -> bool {
        self.waiting.push(done);
        !self.is_looking
    }

    /// Answers those who wait, unless a listing is still being read.
    pub(super) fn answer(&mut self) {
        if !self.is_looking {
            for done in self.waiting.drain(..) {
                // The caller may have gone.
                let _ = done.send(Ok(()));
            }
        }
    }
}
