//! Maps a part of a shared memory object, and copies between the mapping and memory of the process.
//!
//! Other processes write the mapped memory at any time, so no reference to it ever exists. Its bytes are only copied, by
//! the C library, or used by a library that gets the address.
use std::{
    ffi::c_void,
    os::fd::AsFd,
    ptr::{self, NonNull},
};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use crate::{
    bus_errors::{WatchedRange, ensure_handled},
    object::SharedObject,
};

/// An access to the mapping has failed: the object was smaller than the mapping, or the system had no memory for it. The
/// mapping contains zeros since then, which nobody else sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faulted;

/// A part of an object, mapped for reading and writing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    byte_size: usize,
    /// `None` while it is dropped.
    watched: Option<WatchedRange>,
}

// SAFETY: the mapping does not belong to a thread. Copying from and to it on several threads is what other processes do
// anyway: nothing relies on the bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `byte_size` bytes of an object.
    ///
    /// # Errors
    /// That of the system: for no bytes, and for an offset within a page.
    pub(crate) fn new(object: &SharedObject, offset: u64, byte_size: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let descriptor = object.descriptor();
        // SAFETY: the system chooses an address where nothing is mapped.
        let start = unsafe {
            mmap(ptr::null_mut(), byte_size, access, MapFlags::SHARED, descriptor.as_fd(), offset)?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // The handler of faults knows the mapping by its address only.
        start.as_ptr().expose_provenance();
        let mut mapping = Self { start, byte_size, watched: None };
        // SAFETY: this value owns the mapping, and ends the watch before it unmaps.
        mapping.watched = unsafe { WatchedRange::new(start.as_ptr(), byte_size) };
        if mapping.watched.is_none() {
            return Err(Errno::NOMEM);
        }
        ensure_handled();
        Ok(mapping)
    }

    /// The number of bytes.
    pub(crate) fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies the bytes from `offset` on into `target`.
    ///
    /// # Errors
    /// An access has failed, now or earlier. The content of `target` means nothing then.
    ///
    /// # Panics
    /// If the range exceeds the mapping.
    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Faulted> {
        let source = self.place(offset, target.len());
        ensure_handled();
        // SAFETY: both are as long, the source is mapped and readable, and nobody else has the target. The C library
        // copies: what other processes write meanwhile is for it like the writes of a device.
        unsafe { libc::memcpy(target.as_mut_ptr().cast(), source, target.len()) };
        self.check()
    }

    /// Copies `source` into the mapping, from `offset` on.
    ///
    /// # Errors
    /// An access has failed, now or earlier. The client may have got a part of the bytes.
    ///
    /// # Panics
    /// If the range exceeds the mapping.
    pub(crate) fn write(&self, offset: usize, source: &[u8]) -> Result<(), Faulted> {
        let target = self.place(offset, source.len());
        ensure_handled();
        // SAFETY: both are as long, the target is mapped and writable, and no reference to it exists.
        unsafe { libc::memcpy(target, source.as_ptr().cast(), source.len()) };
        self.check()
    }

    /// Reports an access that has failed, whoever made it.
    ///
    /// # Errors
    /// An access has failed.
    pub(crate) fn check(&self) -> Result<(), Faulted> {
        match &self.watched {
            Some(watched) if watched.has_faulted() => Err(Faulted),
            Some(_) | None => Ok(()),
        }
    }

    fn place(&self, offset: usize, byte_size: usize) -> *mut c_void {
        let fits = offset.checked_add(byte_size).is_some_and(|end| end <= self.byte_size);
        assert!(fits, "the range lies within the mapping");
        self.start.as_ptr().wrapping_add(offset).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: this value owns the mapping, and nobody has its address any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.byte_size) };
        debug_assert!(unmapped.is_ok(), "the mapping exists");
    }
}
