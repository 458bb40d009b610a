//! The destination of log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use log::Level;

#[derive(Debug)]
pub(super) enum Sink {
    /// stdout for information and verbose lines, stderr for warnings and errors.
    Streams,
    /// A file, appended to.
    File(File),
}

impl Sink {
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self::File)
    }

    /// Writes a whole line, which ends with a newline. A line that cannot be written is lost: an error has no other
    /// place to go.
    pub(super) fn write(&self, level: Level, line: &[u8]) {
        _ = match self {
            Self::File(file) => (&*file).write_all(line),
            Self::Streams if level <= Level::Warn => io::stderr().lock().write_all(line),
            // The buffer of the standard library writes a text that ends with a newline at once, with one system call.
            Self::Streams => io::stdout().lock().write_all(line),
        };
    }
}
