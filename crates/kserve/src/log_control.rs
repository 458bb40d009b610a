//! The log settings as clients see and change them. The process's log implements the interface.
use vocabulary::Error;

/// The log of the process.
pub trait LogControl: std::fmt::Debug + Send + Sync {
    /// The current settings.
    fn state(&self) -> LogState;

    /// Applies all of `change`, or nothing (P-W34). Returns the settings after it.
    ///
    /// # Errors
    /// The log has no format of that name.
    fn apply(&self, change: &LogChange) -> Result<LogState, UnknownLogFormat>;

    /// The last lines, oldest first. `None` if the log does not keep them.
    fn last_lines(&self) -> Option<Vec<LogLine>>;
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `error`, `warning`, `info` or `verbose`.
    pub level: &'static str,
    /// The line as it was written, without its newline. A long line is cut.
    pub text: String,
}

/// The values of all log settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    /// The file of the log; empty if lines go to stdout and stderr.
    pub file: String,
    /// Whether normal operation is logged.
    pub info: bool,
    /// Whether warnings are logged.
    pub warning: bool,
    /// Whether errors are logged.
    pub error: bool,
    /// How much detail is logged; 0 for none.
    pub verbose_level: u32,
    /// The name of the format.
    pub format: &'static str,
}

/// What a client changes. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogChange {
    /// Whether to log normal operation.
    pub info: Option<bool>,
    /// Whether to log warnings.
    pub warning: Option<bool>,
    /// Whether to log errors.
    pub error: Option<bool>,
    /// How much detail to log.
    pub verbose_level: Option<u32>,
    /// The name of the format.
    pub format: Option<String>,
}

/// The log has no format of the given name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownLogFormat;

/// The error of a server whose process has another program's log.
pub fn absent() -> Error {
    Error::unsupported("the log of this process is not the server's to set")
}

/// The error of a client that sets the log file.
pub fn fixed_file() -> Error {
    Error::unsupported("log file location can not be updated through network protocol")
}

/// The verbosity for a number of the protocol. The reference takes large numbers as negative ones, and logs nothing.
pub fn verbosity(level: u64) -> u32 {
    const MOST: u32 = i32::MAX.unsigned_abs();
    u32::try_from(level).map_or(MOST, |level| level.min(MOST))
}
