//! What a queue of lines writes to.
use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd},
};

use line_writer::LineOutput;
use log::Level;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

/// The destination of log lines.
#[derive(Debug)]
pub(super) enum Destination {
    Stdout,
    Stderr,
    /// A file that is not regular.
    File(File),
}

impl Destination {
    /// The level of a line about the lines for this destination, so that it goes there, too.
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Stdout => Level::Info,
            Self::Stderr | Self::File(_) => Level::Warn,
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.as_fd(), bytes) {
                // Another process has made the stream nonblocking.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::OUT)], None);
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineOutput for Destination {
    /// Other programs may write to a standard stream, too, and what they have written stays.
    fn length(&self) -> Option<u64> {
        None
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsFd for Destination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdout => rustix::stdio::stdout(),
            Self::Stderr => rustix::stdio::stderr(),
            Self::File(file) => file.as_fd(),
        }
    }
}
