//! Lists the repositories' directories. Reports what it finds and decides nothing.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use inference::{
    Error, Name,
    config::{FileEntry, VersionDirectory, version_directory},
};

/// The model directories of all repositories.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Models that are in one repository.
    pub(super) unique: BTreeMap<Name, PathBuf>,
    /// Models that are in several repositories. None of them is served.
    pub(super) duplicated: BTreeMap<Name, Vec<PathBuf>>,
    /// Warnings for the log: ignored directories, and directories that do not look like a repository.
    pub(super) warnings: Vec<String>,
}

/// The expected layout of a repository, for an operator whose repository differs.
const EXPECTED: &str = "a repository has a directory for each model, with a directory for each version: \
                        <repository>/<model>/<version>/<model file>";

/// Lists the repositories. Hidden directories and `lost+found` are not models (M-W14).
///
/// # Errors
/// A repository that does not exist or is not a directory.
pub(super) fn list(repositories: &[PathBuf]) -> Result<Listing, Error> {
    let mut places: BTreeMap<Name, Vec<PathBuf>> = BTreeMap::new();
    let mut listing = Listing::default();
    for repository in repositories {
        let directories = subdirectories(repository, &mut listing.warnings)?;
        let names: Vec<_> = directories.iter().map(|directory| file_name(directory)).collect();
        listing.warnings.extend(unlike_a_repository(repository, &names));
        for (name, directory) in names.iter().zip(directories) {
            places.entry(Name::new(name)).or_default().push(directory);
        }
    }
    for (name, mut directories) in places {
        match (directories.pop(), directories.is_empty()) {
            (Some(only), true) => drop(listing.unique.insert(name, only)),
            (last, _) => drop(listing.duplicated.insert(name, directories.into_iter().chain(last).collect())),
        }
    }
    Ok(listing)
}

/// Why a directory with these subdirectories does not look like a repository, if it does not.
fn unlike_a_repository(repository: &Path, directories: &[String]) -> Option<String> {
    let place = repository.display();
    let is_version = |name: &String| matches!(version_directory(name), VersionDirectory::Version(_));
    let has_config = repository.join("config.pbtxt").is_file();
    if has_config || !directories.is_empty() && directories.iter().all(is_version) {
        let seen = if has_config { "config.pbtxt".to_owned() } else { directories.join(", ") };
        let above = repository.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        let above = above.map(|above| format!(" '{}'", above.display())).unwrap_or_default();
        return Some(format!(
            "the model repository '{place}' looks like a model (it has {seen}): name the directory above it{above}; \
             {EXPECTED}"
        ));
    }
    if !directories.is_empty() {
        return None;
    }
    let seen = contents(repository);
    Some(format!("the model repository '{place}' has no models ({seen}): {EXPECTED}"))
}

/// The text about a model's directory without version directories.
pub(super) fn without_versions(directory: &Path) -> String {
    let (place, seen) = (directory.display(), contents(directory));
    format!(
        "no version of a model is in '{place}' ({seen}): expected a directory named by a number, such as \
         '{place}/1', with the model's files"
    )
}

/// The first names in a directory, for people.
fn contents(directory: &Path) -> String {
    const SHOWN: usize = 8;
    let names: Vec<_> = match entries(directory) {
        Ok(entries) => entries.into_iter().map(|entry| entry.name).collect(),
        Err(error) => return format!("it cannot be read: {error}"),
    };
    match names.len() {
        0 => "it is empty".to_owned(),
        count if count > SHOWN => format!("found {} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => format!("found {}", names.join(", ")),
    }
}

/// The directories below `repository` that may be models, by name. Describes ignored ones in `warnings`.
fn subdirectories(repository: &Path, warnings: &mut Vec<String>) -> Result<Vec<PathBuf>, Error> {
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
            Ok(metadata) if metadata.is_dir() => match file_name(&path) {
                name if name.starts_with('.') => {
                    warnings.push(format!(
                        "ignore hidden directory '{}' in the model repository",
                        path.display()
                    ));
                }
                name if name == "lost+found" => {
                    warnings.push(format!("ignore directory '{}' in the model repository", path.display()));
                }
                _ => found.push(path),
            },
            Ok(_) => {}
            Err(error) => {
                warnings.push(format!("ignore '{}' in the model repository: {error}", path.display()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The entries of a directory, by name. Follows links. An entry whose type cannot be read counts as a file.
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
        let mut warnings = listing.warnings;
        warnings.sort();
        let place = |name: &str| root.path().join("a").join(name).display().to_string();
        assert!(
            warnings[0].starts_with(&format!("ignore '{}' in the model repository: ", place("dangling")))
        );
        assert_eq!(
            warnings[1..],
            [
                format!("ignore directory '{}' in the model repository", place("lost+found")),
                format!("ignore hidden directory '{}' in the model repository", place(".git")),
            ]
        );
    }

    #[test]
    fn a_directory_that_is_no_repository_is_reported_with_its_contents() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["empty", "flat", "versions/1", "versions/2", "configured/other", "good/m/1"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in ["flat/model.onnx", "configured/config.pbtxt", "good/README"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let warnings = |name: &str| list(&[root.path().join(name)]).unwrap().warnings.join("|");
        let above = root.path().canonicalize().unwrap();
        for (name, text) in [
            ("empty", "has no models (it is empty): a repository has"),
            ("flat", "has no models (found model.onnx): a repository has"),
            ("versions", "looks like a model (it has 1, 2): name the directory above it"),
            (
                "configured",
                &format!(
                    "looks like a model (it has config.pbtxt): name the directory above it '{}';",
                    above.display()
                ),
            ),
        ] {
            let warning = warnings(name);
            let place = root.path().join(name);
            assert!(
                warning.starts_with(&format!("the model repository '{}' {text}", place.display())),
                "{warning}"
            );
        }
        assert_eq!(warnings("good"), "");
        let model = root.path().join("flat");
        assert_eq!(
            without_versions(&model),
            format!(
                "no version of a model is in '{0}' (found model.onnx): expected a directory named by a number, such as \
                 '{0}/1', with the model's files",
                model.display()
            )
        );
        for number in 0..11 {
            fs::write(model.join(format!("f{number:02}")), "").unwrap();
        }
        assert!(
            without_versions(&model).contains("(found f00, f01, f02, f03, f04, f05, f06, f07 and 4 more)")
        );
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
