//! Folders for the files of workers in sandboxes.
//!
//! The sandbox of a model has a folder with a folder for each worker, which is removed with the worker. A file beside it is
//! locked as long as the server runs. What a killed server has left has no lock, and the next sandbox removes it.
use std::{
    fs::{self, File, Permissions},
    io,
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};
use tempfile::{NamedTempFile, TempPath};

use crate::sandbox::SandboxUser;

const PREFIX: &str = "nereid-scratch-";
const LOCK: &str = ".lock";

/// The folder with the scratch folders of a sandbox. Dropping it removes it.
#[derive(Debug)]
pub(super) struct ScratchFolders {
    root: PathBuf,
    /// The locked file, and its path. The path is removed last.
    _lock: (File, TempPath),
}

/// The folder of one worker. Dropping it removes it with all that is in it.
#[derive(Debug)]
pub(crate) struct ScratchFolder(PathBuf);

impl ScratchFolders {
    /// Makes the folder in `directory`, or where the system has temporary files. First removes what killed servers have
    /// left there.
    pub(super) fn new(directory: Option<&Path>) -> io::Result<Self> {
        let directory = directory.map_or_else(std::env::temp_dir, Path::to_owned).canonicalize()?;
        remove_abandoned(&directory);
        // The lock is there before the folder, so that nobody takes the folder for an abandoned one.
        let file: NamedTempFile =
            tempfile::Builder::new().prefix(PREFIX).suffix(LOCK).tempfile_in(&directory)?;
        let (file, path) = file.into_parts();
        file.lock()?;
        let root = root_of(&path).ok_or_else(|| io::Error::other("the name of a lock is strange"))?;
        fs::create_dir(&root)?;
        let folders = Self { root, _lock: (file, path) };
        // Another user must reach its own folder, and sees no others.
        fs::set_permissions(&folders.root, Permissions::from_mode(0o711))?;
        Ok(folders)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a folder for a worker, which may become another user.
    pub(super) fn make(&self, user: Option<SandboxUser>) -> io::Result<ScratchFolder> {
        let private = Permissions::from_mode(0o700);
        let folder =
            tempfile::Builder::new().prefix("worker-").permissions(private).tempdir_in(&self.root)?;
        let folder = ScratchFolder(folder.keep());
        if let Some(SandboxUser { uid, gid }) = user.filter(|user| user.is_another()) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(CWD, &folder.0, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(folder)
    }
}

impl Drop for ScratchFolders {
    fn drop(&mut self) {
        remove(&self.root);
    }
}

impl ScratchFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// The folder of a lock.
fn root_of(lock: &Path) -> Option<PathBuf> {
    let name = lock.file_name()?.to_str()?;
    (name.starts_with(PREFIX)).then_some(())?;
    Some(lock.with_file_name(name.strip_suffix(LOCK)?))
}

/// Removes the folders of this user whose locks nobody holds.
fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for lock in entries.flatten().map(|entry| entry.path()) {
        let Some(root) = root_of(&lock) else { continue };
        // Another user may put anything here, also something that waits when it is opened.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(CWD, &lock, flags, Mode::empty()) else { continue };
        let is_ours = fstat(&file).is_ok_and(|status| status.st_uid == geteuid().as_raw());
        let file = File::from(file);
        if !is_ours || !root.is_dir() || file.try_lock().is_err() {
            continue;
        }
        log::info!("the folder {} of a server that was killed is removed", root.display());
        remove(&root);
        if !root.exists() {
            let _ = fs::remove_file(&lock);
        }
    }
}

/// The longest time that a folder is emptied. A process that has left the group of its worker could fill it for ever.
const MOST_TIME: Duration = Duration::from_secs(30);

/// Removes a folder. What remains is removed when a server starts the next time.
fn remove(folder: &Path) {
    match empty(folder).and_then(|()| fs::remove_dir(folder)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("the scratch folder {} cannot be removed: {error}", folder.display()),
    }
}

/// Empties a folder, whatever a model has put there. Folders in folders are moved up before they are emptied: neither the
/// depth nor links cost or mislead anything.
fn empty(folder: &Path) -> io::Result<()> {
    let deadline = Instant::now() + MOST_TIME;
    let root = open_folder(CWD, folder)?;
    let mut moved = 0_u64;
    loop {
        let mut is_empty = true;
        for name in names(&root)? {
            is_empty = false;
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it has too many files"));
            }
            match unlinkat(&root, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
            let inner = open_folder(&root, &name)?;
            for name in names(&inner)? {
                if matches!(unlinkat(&inner, &name, AtFlags::empty()), Err(Errno::ISDIR | Errno::PERM)) {
                    moved += 1;
                    renameat(&inner, &name, &root, format!("{moved}.moved"))?;
                }
            }
            unlinkat(&root, &name, AtFlags::REMOVEDIR)?;
        }
        if is_empty {
            return Ok(());
        }
    }
}

/// Opens a folder that is no link, although its rights may forbid that.
fn open_folder<P: rustix::path::Arg + Copy>(place: impl AsFd + Copy, name: P) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = openat(place, name, flags | OFlags::PATH, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
    // A folder whose owner has no rights to it cannot be emptied otherwise.
    let _ = fs::set_permissions(itself, Permissions::from_mode(0o700));
    Ok(openat(place, name, flags | OFlags::RDONLY, Mode::empty())?.into())
}

/// The names of what is in a folder.
fn names(folder: &File) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let is_itself =
            entry.file_type() == FileType::Directory && matches!(entry.file_name().to_bytes(), b"." | b"..");
        if !is_itself {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn whatever_is_in_a_folder_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let folders = ScratchFolders::new(Some(place.path())).unwrap();
        let scratch = folders.make(None).unwrap();
        let mut deep = scratch.path().to_owned();
        for _ in 0..500 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("file"), "x").unwrap();
        }
        symlink(&outside, scratch.path().join("link")).unwrap();
        symlink(&outside, scratch.path().join("d/link")).unwrap();
        let closed = scratch.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o0)).unwrap();
        let (path, root) = (scratch.path().to_owned(), folders.root().to_owned());
        drop(scratch);
        assert!(!path.exists() && root.is_dir());
        drop(folders);
        assert!(!root.exists() && outside.join("kept").exists());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "only what stands outside is left");
    }

    #[test]
    fn folders_of_a_killed_server_are_removed_and_those_of_a_running_one_are_not() {
        let place = tempfile::tempdir().unwrap();
        let running = ScratchFolders::new(Some(place.path())).unwrap();
        let killed = place.path().join("nereid-scratch-killed");
        fs::create_dir_all(killed.join("worker-1")).unwrap();
        fs::write(place.path().join("nereid-scratch-killed.lock"), "").unwrap();
        fs::create_dir(place.path().join("nereid-scratch-other")).unwrap();
        let next = ScratchFolders::new(Some(place.path())).unwrap();
        assert!(!killed.exists() && !place.path().join("nereid-scratch-killed.lock").exists());
        assert!(running.root().is_dir() && next.root().is_dir());
        // Without a lock nothing says whose it is.
        assert!(place.path().join("nereid-scratch-other").is_dir());
    }
}
