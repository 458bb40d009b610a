//! Sockets of the file system.
//!
//! A server that was killed leaves the file of its socket behind. Only a lock tells whether the server still exists: until
//! it listens, its socket refuses connections like a stale one. So each server locks `<path>.lock`, and whoever has the
//! lock may replace the socket. The system releases the lock when a process ends.
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a socket. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The number of the file. Another server may have replaced it.
    inode: u64,
    /// Dropped after the socket is removed.
    _lock: SocketLock,
}

/// The right to make and remove a socket. Dropping it removes the file of the lock.
#[derive(Debug)]
struct SocketLock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl SocketFile {
    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("failed to remove the socket '{}': {error}", self.path.display());
        }
    }
}

impl SocketLock {
    /// # Errors
    /// `AddrInUse` if another process has the lock.
    fn take(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The last owner may have removed the file after it was opened here.
            let is_current = fs::metadata(&path).is_ok_and(|found| {
                file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
            });
            if is_current {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // The lock is still held, so no other process can have it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds a socket to `path` with the permissions `mode`. Nobody can connect before it listens.
///
/// # Errors
/// `AddrInUse` if another process has a socket there. `AlreadyExists` if there is another kind of file.
pub(super) fn bind(path: &Path, mode: u32) -> io::Result<(Socket, SocketFile)> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let lock = SocketLock::take(name.into())?;
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let inode = fs::symlink_metadata(path)?.ino();
    let file = SocketFile { path: path.to_owned(), inode, _lock: lock };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok((socket, file))
}

/// Removes a socket that an ended process has left behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "there is a file that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path) {
        // A program that knows nothing of the lock.
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::port::{BoundSocket, EndpointAddress};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        (directory, path)
    }

    fn files(directory: &tempfile::TempDir) -> usize {
        fs::read_dir(directory.path()).unwrap().count()
    }

    #[test]
    fn a_socket_has_its_permissions_and_is_removed_at_the_end() {
        let (directory, path) = place();
        let bound = BoundSocket::bind_unix(&path, 0o640).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let listener = bound.listen().unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(listener.address().unwrap(), EndpointAddress::Unix(path.clone()));
        drop(listener);
        assert_eq!(files(&directory), 0);
    }

    #[test]
    fn a_socket_in_use_is_refused_before_and_after_its_server_listens() {
        let (_directory, path) = place();
        let bound = BoundSocket::bind_unix(&path, 0o660).unwrap();
        let text = format!("Socket 'unix:{}' already in use ", path.display());
        assert_eq!(BoundSocket::bind_unix(&path, 0o660).unwrap_err().message, text);
        let _listener = bound.listen().unwrap();
        assert_eq!(BoundSocket::bind_unix(&path, 0o660).unwrap_err().message, text);
    }

    #[test]
    fn a_socket_of_a_program_without_the_lock_is_respected_while_it_listens() {
        let (directory, path) = place();
        let foreign = UnixListener::bind(&path).unwrap();
        assert!(BoundSocket::bind_unix(&path, 0o660).unwrap_err().message.contains("already in use"));
        drop(foreign);
        let own = BoundSocket::bind_unix(&path, 0o660).unwrap();
        drop(own);
        assert_eq!(files(&directory), 0);
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_removed() {
        let (_directory, path) = place();
        fs::write(&path, "content").unwrap();
        let error = BoundSocket::bind_unix(&path, 0o660).unwrap_err();
        assert!(error.message.ends_with("there is a file that is not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
    }

    #[test]
    fn a_replaced_socket_is_left_to_its_new_owner() {
        let (_directory, path) = place();
        let bound = BoundSocket::bind_unix(&path, 0o660).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let (directory, _) = place();
        let path = directory.path().join("x/socket");
        let error = BoundSocket::bind_unix(&path, 0o660).unwrap_err();
        assert!(error.message.contains("x/socket"), "{error}");
    }
}
