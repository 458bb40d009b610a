//! What lies in the repositories' directories. Looks and reports; decides nothing.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use inference::{Error, Name, config::FileEntry};

/// The model directories of all repositories.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Models that are in one repository.
    pub(super) unique: BTreeMap<Name, PathBuf>,
    /// Models that are in several, and so are served from none.
    pub(super) duplicated: BTreeMap<Name, Vec<PathBuf>>,
}

/// Lists the repositories. Hidden directories and `lost+found` are not models (M-W14).
///
/// # Errors
/// A repository that is not there or is not a directory.
pub(super) fn list(repositories: &[PathBuf]) -> Result<Listing, Error> {
    let mut places: BTreeMap<Name, Vec<PathBuf>> = BTreeMap::new();
    for repository in repositories {
        for directory in subdirectories(repository)? {
            let name = file_name(&directory);
            if !name.starts_with('.') && name != "lost+found" {
                places.entry(Name::new(&name)).or_default().push(directory);
            }
        }
    }
    let mut listing = Listing::default();
    for (name, mut directories) in places {
        match (directories.pop(), directories.is_empty()) {
            (Some(only), true) => drop(listing.unique.insert(name, only)),
            (last, _) => drop(listing.duplicated.insert(name, directories.into_iter().chain(last).collect())),
        }
    }
    Ok(listing)
}

/// The directories below `repository`, by name. An entry that cannot be looked at is skipped with a warning.
fn subdirectories(repository: &Path) -> Result<Vec<PathBuf>, Error> {
    let metadata = fs::metadata(repository)
        .map_err(|_| Error::internal(format!("failed to stat file {}", repository.display())))?;
    if !metadata.is_dir() {
        return Err(Error::invalid("repository path is not a valid directory"));
    }
    let failed = |error: io::Error| {
        Error::internal(format!("failed to open directory {}: {error}", repository.display()))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(repository).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => found.push(path),
            Ok(_) => {}
            Err(error) => log::warn!("ignore '{}' in the model repository: {error}", path.display()),
        }
    }
    found.sort();
    Ok(found)
}

/// What lies in a directory, by name. Links are followed; what cannot be looked at counts as a file.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<FileEntry>> {
    let mut found = fs::read_dir(directory)?
        .map(|entry| {
            let path = entry?.path();
            Ok(FileEntry { name: file_name(&path), is_directory: path.is_dir() })
        })
        .collect::<io::Result<Vec<_>>>()?;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_directories_and_belong_to_one_repository() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["a/twice", "a/once", "a/.git", "a/lost+found", "b/twice"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("a/file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("a/dangling")).unwrap();
        let listing = list(&[root.path().join("a"), root.path().join("b")]).unwrap();
        assert_eq!(listing.unique.keys().map(Name::as_str).collect::<Vec<_>>(), ["once"]);
        assert_eq!(listing.duplicated[&Name::new("twice")].len(), 2);
    }

    #[test]
    fn a_repository_that_is_no_directory_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(list(&[file]).unwrap_err().to_string(), "repository path is not a valid directory");
        let missing = root.path().join("missing");
        assert_eq!(
            list(std::slice::from_ref(&missing)).unwrap_err().to_string(),
            format!("failed to stat file {}", missing.display())
        );
    }
}
