//! What tells whether a file is still the file that was opened.
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The properties of a file of which at least one changes when the file is replaced or rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    byte_size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The same for the last change of the file or of its properties. A program that sets the modification time back
    /// cannot set this one.
    changed: (i64, i64),
}

impl FileIdentity {
    /// The file that the path leads to now, through links.
    ///
    /// # Errors
    /// There is no file, or it cannot be reached.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::from(&metadata))
    }

    /// Whether both are the same file, perhaps with different contents.
    pub(super) fn is_file_of(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            byte_size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_by_one_of_the_same_size_and_age_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let (path, next) = (directory.path().join("file"), directory.path().join("next"));
        let age = std::time::SystemTime::UNIX_EPOCH;
        for path in [&path, &next] {
            fs::write(path, "text").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(age).unwrap();
        }
        let first = FileIdentity::of(&path).unwrap();
        assert_eq!(FileIdentity::of(&path).unwrap(), first);
        fs::rename(&next, &path).unwrap();
        let second = FileIdentity::of(&path).unwrap();
        assert!(second != first && !second.is_file_of(&first));
        fs::remove_file(&path).unwrap();
        assert!(FileIdentity::of(&path).is_err());
    }

    #[test]
    fn a_file_that_is_overwritten_in_place_changes_though_its_age_is_set_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "text").unwrap();
        let first = FileIdentity::of(&path).unwrap();
        // The clock of a file system ticks every few milliseconds.
        let changed = || {
            let file = fs::File::options().write(true).open(&path).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"next", 0).unwrap();
            file.set_modified(before).unwrap();
            FileIdentity::of(&path).unwrap()
        };
        let second = std::iter::repeat_with(changed).find(|now| *now != first).unwrap();
        assert!(second.is_file_of(&first));
    }
}
