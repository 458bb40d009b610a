//! Reads files of models. Only regular files are read: a pipe or a device could block the load for ever.
use std::{fs, io, path::Path};

/// The content of a file. Follows links.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    check(path)?;
    fs::read(path)
}

/// The content of a file with text in UTF-8. Follows links.
///
/// # Errors
/// As [`read`], or the content is not UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    check(path)?;
    fs::read_to_string(path)
}

fn check(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    // The system has its own error for directories.
    if kind.is_file() || kind.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().join(name);
        fs::write(place("file"), "text").unwrap();
        symlink("file", place("link")).unwrap();
        let _socket = UnixListener::bind(place("socket")).unwrap();
        assert_eq!(read(&place("link")).unwrap(), b"text");
        assert_eq!(read_text(&place("file")).unwrap(), "text");
        for other in [place("socket"), "/dev/zero".into()] {
            assert_eq!(read(&other).unwrap_err().to_string(), "it is not a regular file");
            assert_eq!(read_text(&other).unwrap_err().to_string(), "it is not a regular file");
        }
        assert_eq!(read(&place("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(root.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
