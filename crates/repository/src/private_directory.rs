//! Temporary directories of this process that only its user can read.
//!
//! They are in one directory, which holds a locked file. The system unlocks the file when the process ends, however it
//! ends, so that a later process knows what it may remove.
use std::{
    env,
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::{Arc, Weak},
};

use inference::lock::{Mutex, MutexGuard};
use tempfile::TempDir;
use vocabulary::Error;

const PREFIX: &str = "nereid-model-";
const LOCK: &str = "lock";

/// How often a process begins anew if another one removes what it has just made.
const ATTEMPTS: usize = 10;

/// A temporary directory. It is removed when this value is dropped, and at the next start of a server of this user if
/// the process is killed.
#[derive(Debug)]
pub struct PrivateDirectory {
    directory: TempDir,
    _all: Arc<PrivateDirectories>,
}

/// The directory of all private directories of the process. It is removed when the last of them is.
#[derive(Debug)]
struct PrivateDirectories {
    directory: TempDir,
    _lock: File,
}

static CURRENT: Mutex<Weak<PrivateDirectories>> = Mutex::new(Weak::new());

impl PrivateDirectory {
    /// Makes an empty directory that only the user of this process can read. Blocks.
    ///
    /// # Errors
    /// INTERNAL if the directory cannot be made.
    pub fn new() -> Result<Self, Error> {
        let failed = |error| Error::internal(format!("failed to create a temporary directory: {error}"));
        let mut current = CURRENT.lock();
        let all = match current.upgrade() {
            Some(all) => all,
            None => {
                let all = Arc::new(PrivateDirectories::new().map_err(failed)?);
                *current = Arc::downgrade(&all);
                all
            }
        };
        let directory = make(all.directory.path()).map_err(failed)?;
        Ok(Self { directory, _all: all })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory now.
    ///
    /// # Errors
    /// INTERNAL if something in it cannot be removed.
    pub(crate) fn remove(self) -> Result<(), Error> {
        self.directory.close().map_err(|error| Error::internal(error.to_string()))
    }
}

impl PrivateDirectories {
    fn new() -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let directory = make(&env::temp_dir())?;
            let path = directory.path().join(LOCK);
            let lock = match File::create_new(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // Until it is locked, another process may take the directory for one that was left.
            let is_ours = lock.try_lock().is_ok()
                && fs::metadata(&path).is_ok_and(|found| is_same(&found, &lock.metadata()));
            if is_ours {
                return Ok(Self { directory, _lock: lock });
            }
        }
        Err(io::Error::other("other processes remove it"))
    }
}

fn is_same(one: &fs::Metadata, other: &io::Result<fs::Metadata>) -> bool {
    other.as_ref().is_ok_and(|other| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn make(parent: &Path) -> io::Result<TempDir> {
    let permissions = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(PREFIX).permissions(permissions).tempdir_in(parent)
}

/// As long as it exists, nobody makes a private directory.
#[must_use = "others are made after it is dropped"]
pub struct NoPrivateDirectories {
    _current: MutexGuard<'static, Weak<PrivateDirectories>>,
}

/// Removes all private directories of this process, which ends now, although threads may still use them. Blocks.
pub fn remove_private_directories() -> NoPrivateDirectories {
    let current = CURRENT.lock();
    if let Some(all) = current.upgrade() {
        let path = all.directory.path();
        // Threads that write do not find it any more. It keeps its prefix, in case the process is killed now.
        let moved = path.with_added_extension("removed");
        let removed = fs::rename(path, &moved).and_then(|()| fs::remove_dir_all(&moved));
        if let Err(error) = removed {
            log::warn!("failed to remove '{}': {error}", path.display());
        }
    }
    NoPrivateDirectories { _current: current }
}

/// Removes what processes of this user have left that were killed. Blocks.
pub fn remove_left_behind() {
    remove_left_behind_in(&env::temp_dir());
}

fn remove_left_behind_in(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let (path, is_own) = (entry.path(), |found: fs::Metadata| found.is_dir() && found.uid() == own);
        // A directory without a lock is being made.
        let lock = entry.metadata().is_ok_and(is_own).then(|| File::open(path.join(LOCK)));
        if let Some(Ok(lock)) = lock
            && lock.try_lock().is_ok()
        {
            match fs::remove_dir_all(&path) {
                Ok(()) => {
                    log::info!("removed '{}', which a process has left that was killed", path.display());
                }
                Err(error) => log::warn!("failed to remove '{}': {error}", path.display()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_private_and_go_one_by_one_and_what_is_in_use_stays() {
        let one = PrivateDirectory::new().unwrap();
        let other = PrivateDirectory::new().unwrap();
        let mode = fs::metadata(one.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(one.path().join("file"), "x").unwrap();
        let (first, second) = (one.path().to_owned(), other.path().to_owned());
        remove_left_behind();
        assert!(first.join("file").exists() && second.exists());
        drop(one);
        assert!(!first.exists() && second.exists());
        other.remove().unwrap();
        assert!(!second.exists());
    }

    #[test]
    fn a_process_that_ends_removes_what_is_in_use() {
        let used = PrivateDirectory::new().unwrap();
        fs::write(used.path().join("file"), "x").unwrap();
        let parent = used.path().parent().unwrap().to_owned();
        drop(remove_private_directories());
        assert!(!parent.exists() && !parent.with_added_extension("removed").exists());
        // A thread that goes on finds nothing.
        assert!(fs::write(used.path().join("other"), "x").is_err());
        drop(used);
    }

    #[test]
    fn what_was_left_is_removed_and_what_is_being_made_is_not() {
        // A place of its own: servers of other tests remove what they find in the common one.
        let place = tempfile::tempdir().unwrap();
        let left = make(place.path()).unwrap();
        let begun = make(place.path()).unwrap();
        fs::write(left.path().join(LOCK), "").unwrap();
        fs::create_dir(left.path().join("model")).unwrap();
        remove_left_behind_in(place.path());
        assert!(!left.path().exists() && begun.path().exists());
    }
}
