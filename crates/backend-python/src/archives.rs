//! Environments in archives (`tar.gz`), unpacked into private folders.
//!
//! Models with the same archive share its folder. The folder is removed with the last of them. A change of the archive
//! counts from the next load on.
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::SystemTime,
};

use flate2::read::GzDecoder;
use inference::{Error, lock::Mutex};
use tempfile::TempDir;

/// The smallest piece of an archive.
const TAR_BLOCK_BYTES: usize = 512;

/// The archives that models use.
#[derive(Debug, Default)]
pub(crate) struct UnpackedArchives {
    /// Held while an archive is unpacked, so that it is unpacked once.
    known: Mutex<HashMap<PathBuf, Weak<UnpackedArchive>>>,
}

/// The folder of an archive. Dropping it removes the folder.
#[derive(Debug)]
pub(crate) struct UnpackedArchive {
    folder: TempDir,
    modified: Option<SystemTime>,
}

impl UnpackedArchive {
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl UnpackedArchives {
    /// The folder of an archive. Unpacks the archive unless this was done since it has changed.
    ///
    /// # Errors
    /// INTERNAL if the archive cannot be read or unpacked.
    pub(crate) fn unpacked(&self, archive: &Path) -> Result<Arc<UnpackedArchive>, Error> {
        let mut known = self.known.lock();
        known.retain(|_, archive| archive.strong_count() > 0);
        let modified = fs::metadata(archive).and_then(|metadata| metadata.modified()).ok();
        if let Some(unpacked) = known.get(archive).and_then(Weak::upgrade)
            && unpacked.modified == modified
        {
            return Ok(unpacked);
        }
        check(archive)?;
        let folder = unpack(archive).map_err(|error| unusable(archive, &error))?;
        let unpacked = Arc::new(UnpackedArchive { folder, modified });
        known.insert(archive.to_owned(), Arc::downgrade(&unpacked));
        Ok(unpacked)
    }
}

/// Checks whether an archive can be opened, without unpacking it.
///
/// # Errors
/// INTERNAL if it is not a file, or if its beginning is not that of an archive.
pub(crate) fn check(archive: &Path) -> Result<(), Error> {
    let begun = open(archive).and_then(|file| GzDecoder::new(file).read_exact(&mut [0; TAR_BLOCK_BYTES]));
    begun.map_err(|error| unusable(archive, &error))
}

fn unusable(archive: &Path, error: &io::Error) -> Error {
    let path = archive.display();
    Error::internal(format!("archive_read_open_filename() failed. The archive is {path}: {error}"))
}

/// Opens a file; a pipe or a device could block for ever.
fn open(archive: &Path) -> io::Result<File> {
    if !fs::metadata(archive)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(archive)
}

/// Unpacks an archive into a new folder. Nothing outside of the folder is written.
fn unpack(archive: &Path) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("nereid-python-environment-").tempdir()?;
    let mut entries = tar::Archive::new(GzDecoder::new(open(archive)?));
    entries.set_preserve_permissions(true);
    entries.unpack(folder.path())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn write(path: &Path, content: &str) {
        let mut builder = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        builder.append_data(&mut header, "bin/activate", content.as_bytes()).unwrap();
        builder.into_inner().unwrap().finish().unwrap();
    }

    #[test]
    fn an_archive_is_unpacked_once_until_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let archive = root.path().join("environment.tar.gz");
        let archives = UnpackedArchives::default();
        write(&archive, "first");
        let one = archives.unpacked(&archive).unwrap();
        let two = archives.unpacked(&archive).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        write(&archive, "second");
        File::open(&archive).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let three = archives.unpacked(&archive).unwrap();
        let content =
            |archive: &UnpackedArchive| fs::read_to_string(archive.folder().join("bin/activate")).unwrap();
        assert_eq!((content(&one), content(&three)), ("first".to_owned(), "second".to_owned()));
        let folder = three.folder().to_owned();
        drop(three);
        assert!(!folder.exists());
    }

    #[test]
    fn a_file_that_is_no_archive_is_named() {
        let root = tempfile::tempdir().unwrap();
        let archive = root.path().join("x.tar.gz");
        fs::write(&archive, "no archive").unwrap();
        let error = UnpackedArchives::default().unpacked(&archive).unwrap_err();
        assert!(error.message.starts_with("archive_read_open_filename() failed."), "{error}");
        assert!(error.message.contains("x.tar.gz"), "{error}");
        assert_eq!(check(&archive).unwrap_err(), error);
        write(&archive, "first");
        assert_eq!(check(&archive), Ok(()));
    }
}
