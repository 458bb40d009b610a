//! Environments in archives (`tar.gz`), unpacked into private folders.
//!
//! Models with the same archive share its folder. The folder is removed with the last of them. A change of the archive
//! counts from the next load on. An archive may come from who writes the model, and is unpacked by the server: so what it
//! becomes has a limit, and no file of it gives rights to those who run it.
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::SystemTime,
};

use flate2::read::GzDecoder;
use inference::lock::Mutex;
use tempfile::TempDir;
use vocabulary::Error;

/// The smallest piece of an archive.
const TAR_BLOCK_BYTES: usize = 512;

/// The most files, folders and links of an archive.
const MOST_ENTRIES: u64 = 2_000_000;

/// The archives that models use.
#[derive(Debug, Default)]
pub(crate) struct UnpackedArchives {
    known: Mutex<HashMap<PathBuf, Arc<ArchiveSlot>>>,
}

/// The place of one archive. The lock is held while the archive is unpacked, so that it is unpacked once, and others
/// meanwhile.
type ArchiveSlot = Mutex<Weak<UnpackedArchive>>;

/// What an archive may become.
#[derive(Debug, Clone, Copy)]
struct ArchiveLimits {
    /// The bytes of its files, and those of the archive without compression.
    bytes: u64,
    entries: u64,
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
    /// The folder of an archive. Unpacks the archive unless this was done since it has changed. Its files may have so many
    /// bytes together.
    ///
    /// # Errors
    /// INTERNAL if the archive cannot be read or unpacked.
    pub(crate) fn unpacked(&self, archive: &Path, most_bytes: u64) -> Result<Arc<UnpackedArchive>, Error> {
        let slot = self.slot(archive);
        let mut unpacked = slot.lock();
        let modified = fs::metadata(archive).and_then(|metadata| metadata.modified()).ok();
        if let Some(unpacked) = unpacked.upgrade()
            && unpacked.modified == modified
        {
            return Ok(unpacked);
        }
        check(archive)?;
        let limits = ArchiveLimits { bytes: most_bytes, entries: MOST_ENTRIES };
        let folder = unpack(archive, limits).map_err(|error| unusable(archive, &error))?;
        let new = Arc::new(UnpackedArchive { folder, modified });
        *unpacked = Arc::downgrade(&new);
        Ok(new)
    }

    fn slot(&self, archive: &Path) -> Arc<ArchiveSlot> {
        let mut known = self.known.lock();
        // A slot that somebody unpacks into is in use, and `try_lock` fails.
        known.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_none_or(|slot| slot.strong_count() > 0)
        });
        known.entry(archive.to_owned()).or_default().clone()
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

/// Unpacks an archive into a new folder. Nothing outside of the folder is written. Of the modes of files, only the rights to
/// read, write and execute count.
fn unpack(archive: &Path, limits: ArchiveLimits) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("nereid-python-environment-").tempdir()?;
    let too_large = || io::Error::other(format!("it becomes larger than {} bytes", limits.bytes));
    // Headers and names are no bytes of files, and padding fills blocks.
    let stream_bytes = limits.bytes.saturating_add(limits.entries.saturating_mul(4 * TAR_BLOCK_BYTES as u64));
    let content = GzDecoder::new(open(archive)?).take(stream_bytes);
    let mut entries = tar::Archive::new(content);
    entries.set_preserve_permissions(false);
    let (mut bytes, mut count) = (0_u64, 0_u64);
    let mut folders = Vec::new();
    for entry in entries.entries()? {
        let mut entry = entry?;
        count += 1;
        // Of a file with holes, that is the size with the holes, which are written.
        bytes = bytes.saturating_add(entry.size());
        if bytes > limits.bytes {
            return Err(too_large());
        }
        if count > limits.entries {
            return Err(io::Error::other(format!("it has more than {} files", limits.entries)));
        }
        let kind = entry.header().entry_type();
        if kind.is_fifo() || kind.is_character_special() || kind.is_block_special() {
            let path = entry.path()?.display().to_string();
            return Err(io::Error::other(format!("'{path}' is neither a file, a folder nor a link")));
        }
        if kind.is_dir() {
            folders.push(entry);
        } else {
            entry.unpack_in(folder.path())?;
        }
    }
    // Folders come last, the inner ones first: one without the right to write could not be filled.
    folders.sort_by(|one, other| other.path_bytes().cmp(&one.path_bytes()));
    for mut entry in folders {
        entry.unpack_in(folder.path())?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const MOST: u64 = 1 << 20;

    fn write(path: &Path, content: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        write_entry(path, header, content);
    }

    fn write_entry(path: &Path, mut header: tar::Header, content: &str) {
        let mut builder = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
        builder.append_data(&mut header, "bin/activate", content.as_bytes()).unwrap();
        builder.into_inner().unwrap().finish().unwrap();
    }

    #[test]
    fn an_archive_is_unpacked_once_until_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let archive = root.path().join("environment.tar.gz");
        let archives = UnpackedArchives::default();
        write(&archive, "first");
        let one = archives.unpacked(&archive, MOST).unwrap();
        let two = archives.unpacked(&archive, MOST).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        write(&archive, "second");
        File::open(&archive).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let three = archives.unpacked(&archive, MOST).unwrap();
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
        let error = UnpackedArchives::default().unpacked(&archive, MOST).unwrap_err();
        assert!(error.message.starts_with("archive_read_open_filename() failed."), "{error}");
        assert!(error.message.contains("x.tar.gz"), "{error}");
        assert_eq!(check(&archive).unwrap_err(), error);
        write(&archive, "first");
        assert_eq!(check(&archive), Ok(()));
    }

    #[test]
    fn what_an_archive_becomes_has_a_limit() {
        let root = tempfile::tempdir().unwrap();
        let archive = root.path().join("environment.tar.gz");
        let refusal = |most: u64| {
            let error = UnpackedArchives::default().unpacked(&archive, most).map(drop).unwrap_err();
            error.message.rsplit_once(": ").unwrap().1.to_owned()
        };
        write(&archive, &"x".repeat(5000));
        assert!(UnpackedArchives::default().unpacked(&archive, 5000).is_ok());
        assert_eq!(refusal(4999), "it becomes larger than 4999 bytes");
        // A header can promise more than the archive has.
        let mut header = tar::Header::new_gnu();
        header.set_size(1 << 40);
        write_entry(&archive, header, "");
        assert_eq!(refusal(MOST), "it becomes larger than 1048576 bytes");
        let limits = ArchiveLimits { bytes: MOST, entries: 0 };
        write(&archive, "");
        assert_eq!(unpack(&archive, limits).unwrap_err().to_string(), "it has more than 0 files");
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Fifo);
        header.set_size(0);
        write_entry(&archive, header, "");
        assert_eq!(refusal(MOST), "'bin/activate' is neither a file, a folder nor a link");
    }

    #[test]
    fn no_file_of_an_archive_gives_rights() {
        let root = tempfile::tempdir().unwrap();
        let archive = root.path().join("environment.tar.gz");
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o7755);
        write_entry(&archive, header, "x");
        let unpacked = UnpackedArchives::default().unpacked(&archive, MOST).unwrap();
        let file = fs::metadata(unpacked.folder().join("bin/activate")).unwrap();
        assert_eq!(file.permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn an_archive_waits_for_itself_only() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (root.path().join("one.tar.gz"), root.path().join("two.tar.gz"));
        let archives = UnpackedArchives::default();
        write(&one, "one");
        write(&two, "two");
        let slot = archives.slot(&one);
        let is_unpacked = slot.lock();
        // Another thread: this one has a lock.
        let other = std::thread::scope(|scope| scope.spawn(|| archives.unpacked(&two, MOST)).join()).unwrap();
        assert!(other.is_ok());
        drop(is_unpacked);
        drop((slot, other));
        let _one = archives.unpacked(&one, MOST).unwrap();
        assert_eq!(archives.known.lock().len(), 1, "what nobody uses is forgotten");
    }
}
