//! Where log lines go.

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

    /// Writes a line that ends with a newline, whole. A line that cannot be written is lost: there is nowhere
    /// to say so.
    pub(super) fn write(&self, level: Level, line: &[u8]) {
        _ = match self {
            Self::File(file) => (&*file).write_all(line),
            Self::Streams if level <= Level::Warn => io::stderr().lock().write_all(line),
            // The standard library's buffer passes what ends with a newline straight on, in one piece.
            Self::Streams => io::stdout().lock().write_all(line),
        };
    }
}
