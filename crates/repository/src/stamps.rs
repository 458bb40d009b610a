//! Looks at the files of a model without reading them.
use std::{fs, io, os::unix::fs::MetadataExt, path::Path, time::SystemTime};

use config::{VersionDirectory, version_directory};
use inference::repository::StoredObject;
use lifecycle::{DirectoryStamp, FileStamp, ModelFiles, is_by_product};

use super::remote::version_of;

/// Files and directories that are looked at in one model. A model with more never counts as unchanged.
const MOST_ENTRIES: usize = 1_000_000;

/// Directories inside each other that are looked at. Links may make circles.
const MOST_LEVELS: usize = 64;

/// While a file of this name is in a model's directory, the model is being written.
const INCOMPLETE: &str = ".triton_incomplete";

/// The files in a model's directory. `config` is the path of the configuration below it.
///
/// # Errors
/// The directory cannot be read, or it changes while it is read.
pub fn files(directory: &Path, config: &str) -> io::Result<ModelFiles> {
    let mut stamps = Vec::new();
    let mut versions = Vec::new();
    let mut open = vec![(directory.to_path_buf(), String::new(), 0)];
    while let Some((directory, prefix, level)) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_by_product(&name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            // A link that leads nowhere is a file without content.
            let metadata = fs::metadata(entry.path()).or_else(|_| entry.metadata())?;
            if metadata.is_dir() {
                if level == 0
                    && let VersionDirectory::Version(version) = version_directory(&name)
                {
                    versions.push(version);
                }
                if level >= MOST_LEVELS {
                    return Err(io::Error::other(format!(
                        "more than {MOST_LEVELS} directories in each other"
                    )));
                }
                open.push((entry.path(), format!("{path}/"), level + 1));
            } else {
                if stamps.len() >= MOST_ENTRIES {
                    return Err(io::Error::other(format!("more than {MOST_ENTRIES} files")));
                }
                stamps.push(stamp(path, &metadata));
            }
        }
    }
    Ok(ModelFiles::new(stamps, config, versions))
}

/// The same of a model in an object store, by its objects. `config` is the path of the configuration.
pub fn of_objects(objects: &[StoredObject], config: &str) -> ModelFiles {
    let is_change = |object: &&StoredObject| !object.path.split('/').any(is_by_product);
    let objects: Vec<_> = objects.iter().filter(is_change).collect();
    let versions = objects.iter().filter_map(|object| version_of(object));
    let stamps = objects.iter().map(|object| {
        let since = object.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        FileStamp {
            path: object.path.as_str().into(),
            byte_size: object.byte_size,
            changed_ns: [i64::try_from(since.as_nanos()).unwrap_or(i64::MAX), 0],
            inode: 0,
            tag: object.etag.as_deref().unwrap_or_default().into(),
        }
    });
    ModelFiles::new(stamps.collect(), config, versions)
}

/// Whether a marker says that the model is being written.
pub fn is_incomplete(directory: &Path) -> bool {
    directory.join(INCOMPLETE).exists()
}

/// What tells whether entries of a directory have come or gone.
pub(crate) fn directory(metadata: &fs::Metadata) -> DirectoryStamp {
    DirectoryStamp { changed_ns: changed_ns(metadata), inode: metadata.ino() }
}

/// Whether a marker among the objects says that the model is being written.
pub fn are_incomplete(objects: &[StoredObject]) -> bool {
    objects.iter().any(|object| object.path == INCOMPLETE)
}

fn stamp(path: String, metadata: &fs::Metadata) -> FileStamp {
    FileStamp {
        path: path.into(),
        byte_size: metadata.len(),
        changed_ns: changed_ns(metadata),
        inode: metadata.ino(),
        tag: Box::default(),
    }
}

fn changed_ns(metadata: &fs::Metadata) -> [i64; 2] {
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    [
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_replaced_or_deleted_is_seen_and_by_products_are_not() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("1/deep")).unwrap();
        fs::write(path("1/deep/weights"), "abc").unwrap();
        fs::write(path("config.pbtxt"), "").unwrap();
        let look = || files(root.path(), "config.pbtxt").unwrap();
        let first = look();
        fs::create_dir(path("__pycache__")).unwrap();
        fs::write(path("__pycache__/x.pyc"), "").unwrap();
        fs::write(path(".config.pbtxt.swp"), "").unwrap();
        assert_eq!(look(), first);
        fs::write(path("1/new"), "abc").unwrap();
        fs::rename(path("1/new"), path("1/deep/weights")).unwrap();
        let replaced = look();
        assert!(replaced != first && !replaced.same_version(&first, 1), "same size, another file");
        fs::write(path("labels.txt"), "").unwrap();
        let labels = look();
        fs::remove_file(path("labels.txt")).unwrap();
        assert!(labels != replaced && look() == replaced, "a deletion is seen");
        fs::create_dir(path("2")).unwrap();
        assert!(look() != replaced, "an empty version is seen");
    }

    #[test]
    fn a_circle_of_links_ends() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("again")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("dangling")).unwrap();
        // The system follows a limited number of links; the last one counts as a file.
        assert!(files(root.path(), "").is_ok());
    }
}
