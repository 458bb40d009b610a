//! The last lines of the log, for people who look at the status page. Bounded in lines and in bytes.
use std::collections::VecDeque;

use inference::lock::{LockRank, Mutex};
use kserve::log_control::LogLine;
use log::Level;

/// All lines together have no more bytes.
const MOST_BYTES: usize = 64 << 10;

/// A longer line is cut.
const MOST_LINE_BYTES: usize = 4 << 10;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct LogTail {
    most_lines: usize,
    kept: Mutex<KeptLines>,
}

#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl LogTail {
    pub(super) fn new(most_lines: usize) -> Self {
        Self { most_lines, kept: Mutex::ranked(LockRank::Log, KeptLines::default()) }
    }

    /// Keeps a line, and forgets those for which there is no room any more.
    pub(super) fn push(&self, level: Level, line: &[u8]) {
        let level = match level {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug | Level::Trace => "verbose",
        };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut text = String::from_utf8_lossy(&line[..line.len().min(MOST_LINE_BYTES)]).into_owned();
        if line.len() > MOST_LINE_BYTES {
            text.push('…');
        }
        let mut kept = self.kept.lock();
        kept.bytes += text.len();
        kept.lines.push_back(LogLine { level, text });
        while kept.lines.len() > self.most_lines || kept.bytes > MOST_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.text.len();
        }
    }

    /// The lines, oldest first.
    pub(super) fn lines(&self) -> Vec<LogLine> {
        self.kept.lock().lines.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tail: &LogTail) -> Vec<String> {
        tail.lines().into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn the_last_lines_are_kept_with_their_levels() {
        let tail = LogTail::new(2);
        for (level, line) in [(Level::Info, "one\n"), (Level::Warn, "two\n"), (Level::Trace, "three\n")] {
            tail.push(level, line.as_bytes());
        }
        let levels: Vec<_> = tail.lines().into_iter().map(|line| line.level).collect();
        assert_eq!((texts(&tail), levels), (vec!["two".into(), "three".into()], vec!["warning", "verbose"]));
    }

    #[test]
    fn long_lines_are_cut_and_all_together_have_a_bound() {
        let tail = LogTail::new(1_000);
        let long = format!("{}\n", "ä".repeat(10_000));
        for _ in 0..100 {
            tail.push(Level::Info, long.as_bytes());
        }
        let texts = texts(&tail);
        assert!(texts.iter().all(|text| text.len() <= MOST_LINE_BYTES + 3 && text.ends_with('…')));
        let bytes: usize = texts.iter().map(String::len).sum();
        assert!((MOST_BYTES - 2 * MOST_LINE_BYTES..=MOST_BYTES).contains(&bytes), "{bytes}");
    }
}
