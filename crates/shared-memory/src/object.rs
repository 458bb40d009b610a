//! Opens the shared memory objects of the system.
use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{FileType, Mode, fstat},
    io::Errno,
    shm,
};
use vocabulary::Error;

/// An open object. It belongs to a client, who may change its length at any time.
#[derive(Debug)]
pub(crate) struct SharedObject(OwnedFd);

impl SharedObject {
    /// Opens an existing object for reading and writing. The system looks for the name among its shared memory objects
    /// only: it refuses slashes within the name, and links. The object is neither created nor changed.
    ///
    /// # Errors
    /// INTERNAL if there is no such object, the server may not write it, or it is no memory. The texts and the code are
    /// those of Triton.
    pub(crate) fn open(key: &str) -> Result<Self, Error> {
        let opened = shm::open(key, shm::OFlags::RDWR, Mode::empty());
        let descriptor = opened.map_err(|errno| {
            log::debug!("failed to open the shared memory object '{key}': {errno}");
            Error::internal(format!("Unable to open shared memory region: '{key}'"))
        })?;
        let is_memory = fstat(&descriptor)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
        if !is_memory {
            return Err(Error::internal(format!("Invalid shared memory region: '{key}'")));
        }
        Ok(Self(descriptor))
    }

    /// The length now, in bytes.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn byte_size(&self) -> Result<u64, Errno> {
        fstat(&self.0).map(|status| u64::try_from(status.st_size).unwrap_or(0))
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> impl AsFd {
        &self.0
    }
}
