//! What has become of lines, and when a loss is told.
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A loss is told at once, and those that follow at most once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How many lines there were. Any thread may read and add.
#[derive(Debug, Default)]
pub struct LineCounts {
    written: AtomicU64,
    lost: AtomicU64,
}

impl LineCounts {
    /// The lines that their outputs have.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The lines that no output has.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Counts lines that an output has.
    pub fn add_written(&self, lines: u64) {
        self.written.fetch_add(lines, Relaxed);
    }

    /// Counts lines that were lost before they came to a writer.
    pub fn add_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Relaxed);
    }
}

/// What has become of the lines of one log, and what its users do not know yet of losses.
#[derive(Debug)]
pub struct LineAccount {
    /// What the lines are, in the plural: `lines of the access log 'a.log'`.
    what: String,
    counts: Arc<LineCounts>,
    /// Lost lines that were not told.
    untold: u64,
    /// The error of the latest loss.
    error: String,
    told_at: Option<Instant>,
}

impl LineAccount {
    /// An account that adds to these counts. `what` says in the plural what is lost.
    pub fn new(what: impl Into<String>, counts: Arc<LineCounts>) -> Self {
        Self { what: what.into(), counts, untold: 0, error: String::new(), told_at: None }
    }

    /// The counts that this account adds to.
    pub fn counts(&self) -> &Arc<LineCounts> {
        &self.counts
    }

    /// Lines are lost, because their output has failed, or could not be opened.
    pub fn lose(&mut self, lines: u64, error: &io::Error) {
        self.counts.add_lost(lines);
        self.untold += lines;
        self.error = error.to_string();
    }

    /// What must be told now about losses: the first one, and what has been lost since within a minute.
    #[must_use = "it is told only once"]
    pub fn due_report(&mut self, now: Instant) -> Option<String> {
        if self.told_at.is_some_and(|told| now.saturating_duration_since(told) < TOLD_EVERY) {
            return None;
        }
        self.told_at = (self.untold > 0).then_some(now).or(self.told_at);
        self.last_report()
    }

    /// What was not told yet about losses. For the end of a log.
    #[must_use = "it is told only once"]
    pub fn last_report(&mut self) -> Option<String> {
        let untold = std::mem::take(&mut self.untold);
        (untold > 0).then(|| format!("lost {}: {untold} ({})", self.what, self.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_at_once_and_the_next_ones_once_a_minute() {
        let mut account = LineAccount::new("lines of 'x'", Arc::default());
        let begin = Instant::now();
        let mut told = |lost: u64, secs| {
            if lost > 0 {
                account.lose(lost, &io::Error::other("full"));
            }
            account.due_report(begin + Duration::from_secs(secs))
        };
        assert_eq!(told(0, 0), None);
        assert_eq!(told(2, 1).as_deref(), Some("lost lines of 'x': 2 (full)"));
        assert_eq!(told(3, 2), None);
        assert_eq!(told(4, 60), None);
        assert_eq!(told(0, 61).as_deref(), Some("lost lines of 'x': 7 (full)"));
        assert_eq!(told(0, 200), None);
        assert_eq!(told(1, 300).as_deref(), Some("lost lines of 'x': 1 (full)"));
        assert_eq!(told(5, 301), None);
        assert_eq!(account.last_report().as_deref(), Some("lost lines of 'x': 5 (full)"));
        assert_eq!(account.last_report(), None);
        assert_eq!((account.counts().written(), account.counts().lost()), (0, 15));
    }
}
