//! Memory whose use a test can forbid: then the processor ends the process where it is used.
use std::ptr;

/// Pages of the process's own.
pub(super) struct GuardedPages {
    address: *mut u8,
    len: usize,
}

impl GuardedPages {
    /// Pages that begin with these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().next_multiple_of(4096).max(4096);
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the system chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        let pages = Self { address: address.cast(), len };
        // SAFETY: the pages are new and have at least as many bytes.
        unsafe { pages.address.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        pages
    }

    /// The first bytes.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.len);
        // SAFETY: the pages live as long as `self` and are readable, unless a test that forbids it uses them itself.
        unsafe { std::slice::from_raw_parts(self.address, len) }
    }

    /// As [`GuardedPages::bytes`].
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len);
        // SAFETY: as above, and they are writable.
        unsafe { std::slice::from_raw_parts_mut(self.address, len) }
    }

    /// From now on the pages may be read only.
    pub(super) fn forbid_writing(&mut self) {
        self.protect(libc::PROT_READ);
    }

    /// From now on the pages may not be used at all.
    pub(super) fn forbid(&mut self) {
        self.protect(libc::PROT_NONE);
    }

    fn protect(&mut self, access: libc::c_int) {
        // SAFETY: pages of this value, which nobody borrows.
        assert_eq!(unsafe { libc::mprotect(self.address.cast(), self.len, access) }, 0);
    }
}

impl Drop for GuardedPages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}
