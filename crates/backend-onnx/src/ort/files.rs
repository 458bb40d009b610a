//! Files that a graph refers to, in memory that no other program can change.
use std::{
    ffi::{CString, c_char},
    fs::File,
    io::{self, Read},
    ptr::{self, NonNull},
};

/// The content of a file, in pages of its own. They go back to the system when it is dropped.
pub(crate) struct FileContent {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns the pages, and nobody writes to them after they have been read.
unsafe impl Send for FileContent {}
// SAFETY: as above.
unsafe impl Sync for FileContent {}

impl FileContent {
    /// Reads a whole file.
    ///
    /// # Errors
    /// The file cannot be read, it becomes shorter while it is read, or there is no memory for it.
    pub(crate) fn read(mut file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if len == 0 {
            return Ok(Self { address: NonNull::dangling(), len });
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the system chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let content = Self { address, len };
        // SAFETY: the pages are new, zeroed, `len` bytes long, and nobody else knows them.
        file.read_exact(unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) })?;
        Ok(content)
    }
}

impl Drop for FileContent {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this value owns the mapping, which was made with this length.
            unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
        }
    }
}

/// Files by the names that a graph gives them.
///
/// Invariant: a session that was made with them keeps them.
#[derive(Default)]
pub(crate) struct FilesInMemory {
    names: Vec<CString>,
    contents: Vec<FileContent>,
}

impl FilesInMemory {
    /// Adds a file. A name with a NUL is not a file's.
    pub(crate) fn add(&mut self, name: &str, content: FileContent) {
        if let Ok(name) = CString::new(name) {
            self.names.push(name);
            self.contents.push(content);
        }
    }

    /// Whether the graph refers to no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The bytes of all contents.
    pub(crate) fn byte_size(&self) -> u64 {
        self.contents.iter().map(|content| content.len as u64).sum()
    }

    /// Pointers to names and contents, and the lengths.
    pub(super) fn columns(&self) -> (Vec<*const c_char>, Vec<*mut c_char>, Vec<usize>) {
        let names = self.names.iter().map(|name| name.as_ptr()).collect();
        let contents = self.contents.iter().map(|content| content.address.as_ptr().cast()).collect();
        (names, contents, self.contents.iter().map(|content| content.len).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_read_whole_and_stays_when_the_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for text in ["", "x", &"y".repeat(100_000)] {
            std::fs::write(&path, text).unwrap();
            let content = FileContent::read(&File::open(&path).unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            // SAFETY: the content's own bytes.
            let bytes = unsafe { std::slice::from_raw_parts(content.address.as_ptr(), content.len) };
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
