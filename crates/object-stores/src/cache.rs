//! The local cache: contents of objects, named by what they are, and directories of models made of them.
//!
//! ```text
//! <cache>/lock                          held while a process starts to use the cache
//! <cache>/contents/<hash>               one file for each content; complete, never changed, only removed
//! <cache>/sessions/<session>.lock       locked as long as its process lives
//! <cache>/sessions/<session>/<number>   an unfinished content
//! <cache>/sessions/<session>/<number>/<model>/...   a copy of a model, made of hard links to contents
//! ```
//!
//! A content is written in the session and renamed, so that a process can be killed at any time. The system releases the
//! lock of a dead process, and the next start removes its session. A content with links besides its own name is in use,
//! by any process. Contents without such links are removed when they exceed the limit, the longest unused first.
//!
//! All functions block, except those of [`crate::LocalCopy`].

pub(crate) mod contents;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use vocabulary::Error;

/// Where the cache is, and how much it keeps.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The directory. It is made if it does not exist. Several processes may use it at the same time.
    pub directory: PathBuf,
    /// How many bytes of contents may stay that no copy uses.
    pub max_unused_bytes: u64,
}

/// The cache of this process.
pub(crate) struct LocalCache {
    directory: PathBuf,
    max_unused_bytes: u64,
    session: PathBuf,
    session_lock: PathBuf,
    /// The lock on `session_lock`. The system releases it when the process ends.
    _locked: File,
    next: AtomicU64,
}

/// A path for a file in the session. If the file is still there when this is dropped, it is removed.
pub(crate) struct TemporaryFile(pub(crate) PathBuf);

impl LocalCache {
    /// Opens the cache, removes what dead processes have left, and removes unused contents beyond the limit.
    ///
    /// # Errors
    /// INTERNAL: the directory cannot be made, written or locked. INVALID_ARGUMENT: it belongs to another user. The error
    /// names the path.
    pub(crate) fn open(options: CacheOptions) -> Result<Arc<Self>, Error> {
        let CacheOptions { directory, max_unused_bytes } = options;
        let sessions = directory.join("sessions");
        for path in [&directory, &sessions, &directory.join("contents")] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| failed("make", path, &error))?;
        }
        check_owner(&directory)?;
        let path = directory.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|error| failed("open", &path, &error))?;
        lock.lock().map_err(|error| failed("lock", &path, &error))?;

        remove_dead_sessions(&sessions);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}-{}", std::process::id(), now.as_nanos());
        let session_lock = sessions.join(format!("{name}.lock"));
        let locked =
            File::create_new(&session_lock).map_err(|error| failed("make", &session_lock, &error))?;
        locked.lock().map_err(|error| failed("lock", &session_lock, &error))?;
        let session = sessions.join(name);
        fs::create_dir(&session).map_err(|error| failed("make", &session, &error))?;
        drop(lock);

        let cache = Self {
            directory,
            max_unused_bytes,
            session,
            session_lock,
            _locked: locked,
            next: AtomicU64::new(0),
        };
        cache.remove_unused();
        Ok(Arc::new(cache))
    }

    /// A path in the session that no other code uses. Nothing is there yet.
    pub(crate) fn unused_path(&self) -> PathBuf {
        self.session.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Makes a file for an unfinished content.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn make_file(&self) -> Result<(TemporaryFile, File), Error> {
        let path = self.unused_path();
        let file = File::create_new(&path).map_err(|error| failed("make", &path, &error))?;
        Ok((TemporaryFile(path), file))
    }
}

impl Drop for LocalCache {
    fn drop(&mut self) {
        remove(&self.session);
        remove(&self.session_lock);
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        in_background(move || remove(&path));
    }
}

/// Runs a function that blocks, and that nobody needs to wait for: what it leaves undone at the end of the process, the
/// end of the session does.
pub(crate) fn in_background(function: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(function)),
        Err(_) => function(),
    }
}

/// The owner of the directory decides what models consist of, so another user must not be the owner.
fn check_owner(directory: &Path) -> Result<(), Error> {
    let owner = fs::metadata(directory).map_err(|error| failed("read", directory, &error))?.uid();
    let user = rustix::process::geteuid().as_raw();
    match owner == user || owner == 0 {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "cache of object stores: '{}' belongs to user {owner} instead of user {user}, who runs the server",
            directory.display()
        ))),
    }
}

/// An error about a path of the cache.
pub(crate) fn failed(verb: &str, path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::exhausted(format!("cache of object stores: cannot {verb} '{}': {error}", path.display()))
        }
        _ => Error::internal(format!("cache of object stores: cannot {verb} '{}': {error}", path.display())),
    }
}

/// Removes the sessions whose locks nobody holds. The caller holds the lock of the cache, so no session is half made.
fn remove_dead_sessions(sessions: &Path) {
    let entries = fs::read_dir(sessions).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_none()) {
        let lock_path = path.with_extension("lock");
        // A session without a lock lost it when it ended.
        let lock = File::open(&lock_path);
        if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
            continue;
        }
        log::info!("cache of object stores: '{}' was left by a process that has ended", path.display());
        remove(&path);
        remove(&lock_path);
    }
    // A process may also have ended between its lock and its directory.
    let entries = fs::read_dir(sessions).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some()) {
        if File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove(&path);
        }
    }
}

/// Removes a file or a directory with all that is in it, if it exists.
pub(crate) fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    if let Err(error) = removed
        && error.kind() != ErrorKind::NotFound
    {
        log::warn!("cache of object stores: cannot remove '{}': {error}", path.display());
    }
}
