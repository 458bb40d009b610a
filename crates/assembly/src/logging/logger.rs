//! The logger of the process.
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use log::{Log, Metadata, Record};
use vocabulary::{Error, ErrorCode, log_target};

use super::{
    line::{LogStyle, line},
    settings::{Levels, LogSettings},
};

/// The initial settings of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The switches.
    pub levels: Levels,
    /// The file for all lines; `None` for stdout (information and verbose) and stderr (warnings and errors).
    pub file: Option<PathBuf>,
    /// Whether messages are JSON strings, so that one message is always one line.
    pub escape_messages: bool,
}

/// How long the end of a process waits for the reader of its log.
pub const LAST_LINES: Duration = Duration::from_secs(1);

/// The switches of this process's logger, if Nereid has installed it.
static PROCESS: OnceLock<Arc<LogSettings>> = OnceLock::new();

/// Makes this the process's logger and returns its switches. Call once.
///
/// # Errors
/// The log file cannot be opened (P-W35: Triton continues without a log), or the process has a logger already.
pub fn install(config: &LogConfig) -> Result<Arc<LogSettings>, Error> {
    let logger = Logger::new(config)?;
    let settings = Arc::clone(&logger.settings);
    let taken = |_| Error::new(ErrorCode::AlreadyExists, "the log was set up twice");
    log::set_boxed_logger(Box::new(logger)).map_err(taken)?;
    settings.govern_facade();
    Ok(PROCESS.get_or_init(|| settings).clone())
}

/// The switches of this process's logger. If there is no logger, this installs one: everything but verbose lines, to
/// stdout and stderr. `None` if the program has installed another logger.
pub fn of_process() -> Option<Arc<LogSettings>> {
    let raw = std::env::var_os("TRITON_SERVER_ESCAPE_LOG_MESSAGES").is_some_and(|value| value == "0");
    let config = LogConfig { levels: Levels::default(), file: None, escape_messages: !raw };
    PROCESS.get().cloned().or_else(|| install(&config).ok()).or_else(|| PROCESS.get().cloned())
}

struct Logger {
    settings: Arc<LogSettings>,
    escape_messages: bool,
    process: u32,
}

impl Logger {
    fn new(config: &LogConfig) -> Result<Self, Error> {
        let settings = Arc::new(LogSettings::new(config.levels));
        settings.set_file(config.file.as_deref())?;
        Ok(Self { settings, escape_messages: config.escape_messages, process: std::process::id() })
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.settings.enabled(metadata.level())
    }

    fn log(&self, record: &Record<'_>) {
        let levels = self.settings.levels();
        if !levels.enabled(record.level()) {
            return;
        }
        let now = SystemTime::now();
        // No lock is held while the program's function runs.
        if self.settings.callback().is_some_and(|callback| callback.take(record, now)) {
            return;
        }
        let style =
            LogStyle { format: levels.format, escape_messages: self.escape_messages, process: self.process };
        let on_stderr = record.target() == log_target::STDERR;
        self.settings.write(record.level(), &line(record, now, style), on_stderr);
    }

    fn flush(&self) {
        self.settings.flush(LAST_LINES);
    }
}

#[cfg(test)]
mod tests {
    use log::Level;

    use super::*;

    fn config(file: PathBuf) -> LogConfig {
        LogConfig { levels: Levels::default(), file: Some(file), escape_messages: true }
    }

    fn record(logger: &Logger, level: Level, text: &str) {
        let arguments = format_args!("{text}");
        logger.log(
            &Record::builder()
                .level(level)
                .args(arguments)
                .file(Some("src/model/driver.rs"))
                .line(Some(7))
                .build(),
        );
    }

    #[test]
    fn lines_are_appended_to_the_log_file_at_every_level() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let logger = Logger::new(&config(path.clone())).unwrap();
        record(&logger, Level::Info, "one");
        record(&logger, Level::Error, "two");
        let text = std::fs::read_to_string(&path).unwrap();
        let ends: Vec<_> = text.lines().map(|line| line.rsplit("driver.rs:7] ").next().unwrap()).collect();
        assert_eq!(ends, ["before", "\"one\"", "\"two\""]);
    }

    #[test]
    fn a_switch_takes_effect_while_running() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Logger::new(&config(path.clone())).unwrap();
        record(&logger, Level::Debug, "hidden");
        logger.settings.update(|levels| levels.verbose = 1);
        record(&logger, Level::Debug, "shown");
        logger.settings.update(|levels| levels.info = false);
        record(&logger, Level::Info, "hidden");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("\"shown\"\n") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_log_file_that_cannot_be_opened_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/x.log");
        let error = Logger::new(&config(path.clone())).err().unwrap();
        assert!(error.message.starts_with(&format!("failed to open log file '{}': ", path.display())));
    }

    #[test]
    fn a_log_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let logger = Logger::new(&config(path.clone())).unwrap();
        record(&logger, Level::Info, "one");
        std::fs::rename(&path, &old).unwrap();
        record(&logger, Level::Info, "two");
        assert_eq!(logger.settings.reopen().unwrap(), Some(path.clone()));
        record(&logger, Level::Info, "three");
        let lines = |path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((lines(old), lines(path)), (2, 1));
        logger.settings.set_file(None).unwrap();
        assert_eq!(logger.settings.reopen().unwrap(), None);
    }

    #[test]
    fn the_log_can_move_to_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let logger = Logger::new(&config(first.clone())).unwrap();
        record(&logger, Level::Info, "one");
        logger.settings.set_file(Some(&second)).unwrap();
        assert!(logger.settings.set_file(Some(&folder.path().join("missing/x"))).is_err());
        record(&logger, Level::Info, "two");
        assert!(std::fs::read_to_string(first).unwrap().ends_with("\"one\"\n"));
        assert!(std::fs::read_to_string(&second).unwrap().ends_with("\"two\"\n"));
        assert_eq!(logger.settings.file(), Some(second));
    }
}
