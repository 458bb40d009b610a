//! A file that is open only so that it can be closed: a process without free descriptors cannot accept a connection, not even
//! to refuse it, and the client would wait for ever.
//!
//! It is a socket, because that needs no path: the root of a container may have no `/dev`.
use std::{io, os::unix::net::UnixDatagram};

/// ENFILE and EMFILE of Linux: the system, or the process, has as many open files as it may have.
const NO_FREE_DESCRIPTOR: [i32; 2] = [23, 24];

/// The descriptor for one connection to refuse.
#[derive(Debug)]
pub(super) struct SpareFile(Option<UnixDatagram>);

impl SpareFile {
    /// Without a free descriptor there is no spare file.
    pub(super) fn open() -> Self {
        let mut spare = Self(None);
        spare.reopen();
        spare
    }

    /// Closes the file if `error` says that there is no free descriptor. Returns whether there is one now.
    pub(super) fn close_for(&mut self, error: &io::Error) -> bool {
        lacks_descriptor(error) && self.0.take().is_some()
    }

    /// Opens the file again. Returns false if there is no free descriptor.
    pub(super) fn reopen(&mut self) -> bool {
        if self.0.is_some() {
            return true;
        }
        match UnixDatagram::unbound() {
            Ok(file) => self.0 = Some(file),
            Err(error) => return !lacks_descriptor(&error),
        }
        true
    }
}

fn lacks_descriptor(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| NO_FREE_DESCRIPTOR.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_closed_once_and_only_for_want_of_a_descriptor() {
        let mut spare = SpareFile::open();
        assert!(!spare.close_for(&io::Error::other("another error")));
        assert!(spare.close_for(&io::Error::from_raw_os_error(24)));
        assert!(!spare.close_for(&io::Error::from_raw_os_error(24)));
        assert!(spare.reopen() && spare.reopen());
        assert!(spare.close_for(&io::Error::from_raw_os_error(23)));
    }
}
