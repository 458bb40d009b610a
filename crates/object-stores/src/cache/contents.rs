//! The contents of objects: finding, adding and removing them.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inference::repository::StoredObject;
use vocabulary::Error;

use super::{LocalCache, TemporaryFile, failed, remove};

/// Names a content: a hash of its URL, its tag and its size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContentId {
    hash: String,
    byte_size: u64,
    /// The time of the object in whole seconds. The file has it too, and loses it when a program changes the file.
    modified: SystemTime,
}

impl ContentId {
    /// The id of an object. `url` names the object, not only the repository.
    pub(crate) fn new(url: &str, object: &StoredObject) -> Self {
        let since = object.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = UNIX_EPOCH + Duration::from_secs(since.as_secs());
        let mut hasher = blake3::Hasher::new();
        let tag = match &object.etag {
            Some(etag) => format!("etag {etag}"),
            // Without a tag, the time must tell two contents of the same size apart.
            None => format!("modified {}", since.as_nanos()),
        };
        for part in [url, tag.as_str()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.update(&object.byte_size.to_le_bytes());
        Self { hash: hasher.finalize().to_hex().to_string(), byte_size: object.byte_size, modified }
    }

    /// A text that differs for different contents.
    pub(crate) fn as_str(&self) -> &str {
        &self.hash
    }

    fn is_content(&self, metadata: &fs::Metadata) -> bool {
        metadata.is_file()
            && metadata.len() == self.byte_size
            && metadata.modified().ok() == Some(self.modified)
    }
}

/// Whether a content was in the cache.
#[derive(Debug, PartialEq)]
pub(crate) enum ContentOrigin {
    /// The file is there.
    Found,
    /// The content must be fetched first.
    Absent,
}

impl LocalCache {
    fn content_path(&self, id: &ContentId) -> PathBuf {
        self.directory.join("contents").join(&id.hash)
    }

    /// Puts a content at a path of a copy. A damaged content is removed and counts as absent.
    ///
    /// # Errors
    /// The path cannot be written.
    pub(crate) fn link(&self, id: &ContentId, target: &Path) -> Result<ContentOrigin, Error> {
        let source = self.content_path(id);
        match fs::metadata(&source) {
            Err(_) => return Ok(ContentOrigin::Absent),
            Ok(metadata) if !id.is_content(&metadata) => {
                log::warn!("cache of object stores: '{}' was changed and is fetched again", source.display());
                remove(&source);
                return Ok(ContentOrigin::Absent);
            }
            Ok(_) => {}
        }
        mark_used(&source);
        match hard_link_or_copy(&source, target, id.modified) {
            Ok(()) => Ok(ContentOrigin::Found),
            // Another process has removed the content in between.
            Err(error) if error.kind() == ErrorKind::NotFound && !source.exists() => {
                Ok(ContentOrigin::Absent)
            }
            Err(error) => Err(failed("write", target, &error)),
        }
    }

    /// Makes a complete file a content and puts it at a path of a copy.
    ///
    /// # Errors
    /// The file has another size than the content. A path cannot be written.
    pub(crate) fn add(
        &self,
        id: &ContentId,
        file: &File,
        path: &TemporaryFile,
        target: &Path,
    ) -> Result<(), Error> {
        let finish = || -> io::Result<u64> {
            file.set_times(FileTimes::new().set_modified(id.modified).set_accessed(SystemTime::now()))?;
            // A backend that wrote into this file would change the content of all later copies.
            file.set_permissions(Permissions::from_mode(0o444))?;
            // The name must not reach the disk before the content does.
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        let byte_size = finish().map_err(|error| failed("write", &path.0, &error))?;
        if byte_size != id.byte_size {
            return Err(Error::internal(format!(
                "a content of {} bytes was written as {byte_size} bytes",
                id.byte_size
            )));
        }
        hard_link_or_copy(&path.0, target, id.modified).map_err(|error| failed("write", target, &error))?;
        let content = self.content_path(id);
        fs::rename(&path.0, &content).map_err(|error| failed("make", &content, &error))
    }

    /// Removes contents that no copy uses until the rest is within the limit, the longest unused first.
    pub(crate) fn remove_unused(&self) {
        let entries = fs::read_dir(self.directory.join("contents")).into_iter().flatten().flatten();
        let mut unused = Vec::new();
        for entry in entries {
            // A second link is a copy.
            let Some(metadata) = entry.metadata().ok().filter(|metadata| metadata.nlink() == 1) else {
                continue;
            };
            unused.push((metadata.accessed().unwrap_or(UNIX_EPOCH), metadata.len(), entry.path()));
        }
        let mut bytes: u64 = unused.iter().map(|(_, size, _)| size).sum();
        unused.sort();
        for (_, size, path) in unused {
            if bytes <= self.max_unused_bytes {
                return;
            }
            remove(&path);
            bytes -= size;
        }
    }
}

/// Notes that a content was used now. If this fails, the content may be removed earlier than others.
fn mark_used(path: &Path) {
    let marked =
        File::open(path).and_then(|file| file.set_times(FileTimes::new().set_accessed(SystemTime::now())));
    if let Err(error) = marked {
        log::debug!("cache of object stores: cannot note the use of '{}': {error}", path.display());
    }
}

/// Some file systems have no hard links, and some limit their number. A copy then costs its size.
fn hard_link_or_copy(source: &Path, target: &Path, modified: SystemTime) -> io::Result<()> {
    match fs::hard_link(source, target) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => Err(error),
        Err(_) => {
            fs::copy(source, target)?;
            File::open(target)?.set_times(FileTimes::new().set_modified(modified))
        }
    }
}
