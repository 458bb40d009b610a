//! What tells whether a file is still the file that was opened.
use std::{fs::Metadata, os::unix::fs::MetadataExt};

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
    /// Whether both are the same file, perhaps with different contents.
    pub fn is_file_of(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<Metadata> for FileIdentity {
    fn from(metadata: Metadata) -> Self {
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
    use std::{fs, io, path::Path};

    use super::*;

    fn identity(path: &Path) -> io::Result<FileIdentity> {
        fs::metadata(path).map(FileIdentity::from)
    }

    #[test]
    fn a_file_that_is_replaced_by_one_of_the_same_size_and_age_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let (path, next) = (directory.path().join("file"), directory.path().join("next"));
        let age = std::time::SystemTime::UNIX_EPOCH;
        for path in [&path, &next] {
            fs::write(path, "text").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(age).unwrap();
        }
        let first = identity(&path).unwrap();
        assert_eq!(identity(&path).unwrap(), first);
        fs::rename(&next, &path).unwrap();
        let second = identity(&path).unwrap();
        assert!(second != first && !second.is_file_of(&first));
        fs::remove_file(&path).unwrap();
        assert!(identity(&path).is_err());
    }

    #[test]
    fn a_file_that_is_overwritten_in_place_changes_though_its_age_is_set_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "text").unwrap();
        let first = identity(&path).unwrap();
        // The clock of a file system ticks every few milliseconds.
        let changed = || {
            let file = fs::File::options().write(true).open(&path).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"next", 0).unwrap();
            file.set_modified(before).unwrap();
            identity(&path).unwrap()
        };
        let second = std::iter::repeat_with(changed).find(|now| *now != first).unwrap();
        assert!(second.is_file_of(&first));
    }
}
