//! The lines of test code that may sleep or measure time, and why.

use std::fmt;

/// Lines of a file that may do so.
pub(super) struct TimingException {
    /// The path of the file in the repository, or of the folder, which ends with a slash.
    pub(super) path: &'static str,
    /// What the lines contain.
    pub(super) line: &'static str,
    pub(super) reason: &'static str,
}

impl TimingException {
    pub(super) fn covers(&self, path: &str, line: &str) -> bool {
        let here = path == self.path || (self.path.ends_with('/') && path.starts_with(self.path));
        here && line.contains(self.line)
    }
}

impl fmt::Display for TimingException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, '{}': {}", self.path, self.line, self.reason)
    }
}

pub(super) const EXCEPTIONS: &[TimingException] = &[];
