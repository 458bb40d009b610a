//! Which failed executions of an instance have a line in the log: the first one, and then one in a while.
//!
//! Triton writes each of them (pb_stub.cc, ProcessRequests). A model that fails always would fill the disk.
use std::time::{Duration, Instant};

/// Between two lines of an instance lies so much time.
const INTERVAL: Duration = Duration::from_secs(10);

/// A line has so many bytes of the error.
const MOST_BYTES: usize = 4096;

/// What was logged last. Pure.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    last: Option<Instant>,
    /// Failures since the last line.
    unlogged: u64,
}

impl FailureLog {
    /// The line for an execution that has failed now, if it gets one.
    pub(crate) fn line(&mut self, error: &str, now: Instant) -> Option<String> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            self.unlogged += 1;
            return None;
        }
        self.last = Some(now);
        let error = error.trim_end();
        let mut line = error[..error.floor_char_boundary(MOST_BYTES)].to_owned();
        if line.len() < error.len() {
            line.push('…');
        }
        match std::mem::take(&mut self.unlogged) {
            0 => {}
            1 => line.push_str(" (since the last such line, 1 more execution has failed)"),
            more => {
                line.push_str(&format!(" (since the last such line, {more} more executions have failed)"));
            }
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_has_a_line_and_then_one_in_a_while_that_counts_the_others() {
        let (mut log, begin) = (FailureLog::default(), Instant::now());
        let mut line = |seconds| log.line("boom\n", begin + Duration::from_secs(seconds));
        assert_eq!(line(0).as_deref(), Some("boom"));
        assert_eq!([line(1), line(5), line(9)], [None, None, None]);
        assert_eq!(
            line(10).as_deref(),
            Some("boom (since the last such line, 3 more executions have failed)")
        );
        assert_eq!(line(11), None);
        assert_eq!(line(30).as_deref(), Some("boom (since the last such line, 1 more execution has failed)"));
        assert_eq!(line(50).as_deref(), Some("boom"));
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let line = FailureLog::default().line(&"é".repeat(3000), Instant::now()).unwrap();
        assert_eq!(line, format!("{}…", "é".repeat(MOST_BYTES / 2)));
    }
}
