//! The settings of the log, which the logger shares with the code that changes them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use inference::lock::Mutex;
use log::{Level, LevelFilter};
use parking_lot::RwLock;
use vocabulary::{Error, log_target};

use super::callback::{LogCallback, LogCallbackQueue};
use super::sink::{LogSink, flush_streams, to_stderr};
use super::tail::LogTail;

/// The form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `I1121 00:46:54.183347 17180 driver.rs:25] `
    #[default]
    Default,
    /// `2025-11-21T00:46:54Z I 17180 driver.rs:25] `
    Iso8601,
    /// Each record is a JSON object in one line. Triton has no such format.
    Json,
}

impl LogFormat {
    /// The name of the format in options and in the logging endpoint.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Iso8601 => "ISO8601",
            Self::Json => "json",
        }
    }

    /// The format with this name; case matters.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// All formats, by their numbers in a packed word.
    const ALL: [Self; 3] = [Self::Default, Self::Iso8601, Self::Json];
}

/// The values of all switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Whether to log normal operation.
    pub info: bool,
    /// Whether to log warnings.
    pub warning: bool,
    /// Whether to log errors.
    pub error: bool,
    /// How much detail to log: 0 for none. Does not depend on `info`.
    pub verbose: u32,
    /// The form of lines.
    pub format: LogFormat,
}

impl Default for Levels {
    /// Everything but verbose lines.
    fn default() -> Self {
        Self { info: true, warning: true, error: true, verbose: 0, format: LogFormat::Default }
    }
}

impl Levels {
    /// Whether records of this level are logged.
    pub fn enabled(self, level: Level) -> bool {
        match level {
            Level::Error => self.error,
            Level::Warn => self.warning,
            Level::Info => self.info,
            Level::Debug => self.verbose >= 1,
            Level::Trace => self.verbose >= 2,
        }
    }

    /// The most detailed level that is logged.
    fn most_detailed(self) -> LevelFilter {
        let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error];
        levels
            .into_iter()
            .find(|level| self.enabled(*level))
            .map_or(LevelFilter::Off, |level| level.to_level_filter())
    }

    /// All switches in one atomic word, so that a reader never sees half of a change.
    fn pack(self) -> u64 {
        u64::from(self.verbose) << 32
            | (self.format as u64) << 3
            | u64::from(self.error) << 2
            | u64::from(self.warning) << 1
            | u64::from(self.info)
    }

    fn unpack(packed: u64) -> Self {
        let bit = |at: u32| packed >> at & 1 == 1;
        Self {
            info: bit(0),
            warning: bit(1),
            error: bit(2),
            verbose: u32::try_from(packed >> 32).expect("32 bits are left"),
            format: LogFormat::ALL[(packed >> 3 & 3) as usize],
        }
    }
}

/// The switches of a logger, and the destination of its lines.
#[derive(Debug)]
pub struct LogSettings {
    levels: AtomicU64,
    output: RwLock<LogOutput>,
    /// Takes records in place of the output.
    callback: RwLock<Option<Arc<LogCallbackQueue>>>,
    /// Whether the maximum level of the `log` crate follows these switches.
    governs_facade: AtomicBool,
    /// The last lines, if they are kept.
    tail: OnceLock<LogTail>,
    /// Held while switches change, so that two changes at the same time do not undo each other.
    change: Mutex<()>,
}

/// The destination of lines, and its name.
#[derive(Debug)]
struct LogOutput {
    sink: LogSink,
    file: Option<PathBuf>,
}

impl LogSettings {
    pub(super) fn new(levels: Levels) -> Self {
        Self {
            levels: AtomicU64::new(levels.pack()),
            output: RwLock::new(LogOutput { sink: LogSink::Streams, file: None }),
            callback: RwLock::new(None),
            governs_facade: AtomicBool::new(false),
            tail: OnceLock::new(),
            change: Mutex::new(()),
        }
    }

    /// The current values of the switches.
    pub fn levels(&self) -> Levels {
        Levels::unpack(self.levels.load(Ordering::Relaxed))
    }

    /// The log file; `None` if lines go to stdout and stderr.
    pub fn file(&self) -> Option<PathBuf> {
        self.output.read().file.clone()
    }

    /// Sets the file that lines are appended to; `None` for stdout and stderr.
    ///
    /// # Errors
    /// INTERNAL: the file cannot be opened; nothing has changed then.
    pub fn set_file(&self, file: Option<&Path>) -> Result<(), Error> {
        let refused = |path: &Path, error: std::io::Error| {
            Error::internal(format!("failed to open log file '{}': {error}", path.display()))
        };
        let sink = match file {
            None => LogSink::Streams,
            Some(path) => LogSink::append_to(path).map_err(|error| refused(path, error))?,
        };
        *self.output.write() = LogOutput { sink, file: file.map(Path::to_owned) };
        Ok(())
    }

    /// Opens the log file again, so that lines go to a new file after the old one was renamed. Returns its path; `None`
    /// if there is no log file.
    ///
    /// # Errors
    /// INTERNAL: the file cannot be opened; lines still go to the old file.
    pub fn reopen(&self) -> Result<Option<PathBuf>, Error> {
        let Some(path) = self.file() else { return Ok(None) };
        self.set_file(Some(&path)).map(|()| Some(path))
    }

    /// Passes each record to a function of the program, and no longer to the file, stdout or stderr; `None` for those.
    /// The last function gets no record more, but may still be in a call when this returns.
    pub fn set_callback(&self, callback: Option<LogCallback>) {
        let last = std::mem::replace(&mut *self.callback.write(), callback.map(LogCallbackQueue::new));
        if let Some(last) = last {
            last.clear();
        }
    }

    pub(super) fn callback(&self) -> Option<Arc<LogCallbackQueue>> {
        self.callback.read().clone()
    }

    /// Keeps so many of the lines that follow, in memory. Only the first call has an effect.
    pub fn keep_lines(&self, most: NonZeroUsize) {
        let _ = self.tail.set(LogTail::new(most.get()));
    }

    /// The last lines, if they are kept.
    pub(super) fn tail(&self) -> Option<&LogTail> {
        self.tail.get()
    }

    /// Writes a whole line. `on_stderr`: to stderr, even if there is a log file, which gets the line, too.
    pub(super) fn write(&self, level: Level, line: &[u8], on_stderr: bool) {
        if let Some(tail) = self.tail.get() {
            tail.push(level, line);
        }
        let (report, has_file) = {
            let output = self.output.read();
            (output.sink.write(level, line), output.file.is_some())
        };
        if on_stderr && has_file {
            to_stderr(line);
        }
        // The line about the loss passes this function itself. It causes no other one: the loss is told for a minute.
        if let Some(report) = report {
            log::error!(target: log_target::STDERR, "{report}");
        }
    }

    /// Waits until the lines so far are written, or passed to the program, for that time at most.
    pub fn flush(&self, most: Duration) {
        let deadline = Instant::now() + most;
        if let Some(callback) = self.callback() {
            callback.flush(deadline);
        }
        self.output.read().sink.flush(deadline);
        flush_streams(most);
    }

    /// Changes switches atomically and returns their new values.
    pub fn update(&self, change: impl FnOnce(&mut Levels)) -> Levels {
        let _one_at_a_time = self.change.lock();
        let mut levels = self.levels();
        change(&mut levels);
        self.levels.store(levels.pack(), Ordering::Relaxed);
        if self.governs_facade.load(Ordering::Relaxed) {
            log::set_max_level(levels.most_detailed());
        }
        levels
    }

    pub(super) fn enabled(&self, level: Level) -> bool {
        self.levels().enabled(level)
    }

    /// Lets the `log` crate drop records that are switched off, before they reach the logger.
    pub(super) fn govern_facade(&self) {
        self.governs_facade.store(true, Ordering::Relaxed);
        self.update(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_survives_packing() {
        for bits in 0..24 {
            for verbose in [0, 1, 2, u32::MAX] {
                let levels = Levels::unpack(u64::from(verbose) << 32 | bits);
                assert_eq!(levels.pack(), u64::from(verbose) << 32 | bits);
                assert_eq!(
                    (levels.info, levels.warning, levels.error),
                    (bits & 1 == 1, bits & 2 == 2, bits & 4 == 4)
                );
                assert_eq!((levels.verbose, levels.format), (verbose, LogFormat::ALL[bits as usize / 8]));
            }
        }
    }

    #[test]
    fn the_log_facade_passes_every_level_that_is_on() {
        let levels = Levels::default();
        assert_eq!(levels.most_detailed(), LevelFilter::Info);
        assert_eq!(Levels { info: false, ..levels }.most_detailed(), LevelFilter::Warn);
        assert_eq!(Levels { info: false, verbose: 1, ..levels }.most_detailed(), LevelFilter::Debug);
        assert_eq!(Levels { verbose: 2, ..levels }.most_detailed(), LevelFilter::Trace);
        let none = Levels { info: false, warning: false, error: false, ..levels };
        assert_eq!(none.most_detailed(), LevelFilter::Off);
    }

    #[test]
    fn a_level_is_logged_by_its_own_switch_alone() {
        let levels =
            Levels { info: false, warning: true, error: false, verbose: 1, format: LogFormat::Default };
        let logged: Vec<_> = Level::iter().filter(|level| levels.enabled(*level)).collect();
        assert_eq!(logged, [Level::Warn, Level::Debug]);
    }

    #[test]
    fn formats_are_found_by_their_exact_names() {
        assert_eq!(LogFormat::named("default"), Some(LogFormat::Default));
        assert_eq!(LogFormat::named("ISO8601"), Some(LogFormat::Iso8601));
        assert_eq!(LogFormat::named("json"), Some(LogFormat::Json));
        assert_eq!(LogFormat::named("iso8601"), None);
    }
}
