//! Lists the models of the repositories. Reports what it finds and decides nothing.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use config::{FileEntry, MODEL_FORMATS, VersionDirectory, version_directory};
use inference::repository::StoredObject;
use lifecycle::{DirectoryStamp, ModelKey, ModelLocation};
use vocabulary::{Error, Name};

use super::{
    remote::{RemoteModels, model_url},
    repositories::{Repositories, RepositorySource},
    stamps,
};

/// The models of all repositories.
#[derive(Debug, Default)]
pub struct FoundPlaces {
    /// The places of each model: one, or several if several repositories have a model of the name.
    pub models: BTreeMap<ModelKey, Vec<FoundPlace>>,
    /// The directories of the repositories, as they were before they were listed.
    pub repositories: BTreeMap<Name, DirectoryStamp>,
    /// Repositories that cannot be read, with their errors.
    pub unreadable: Vec<(Name, Error)>,
    /// Warnings for the log: ignored directories, and directories that do not look like a repository.
    pub warnings: Vec<String>,
}

/// A directory in a repository, or a model of an object store with its objects.
#[derive(Debug, Clone)]
pub struct FoundPlace {
    /// Where it is.
    pub place: Arc<ModelLocation>,
    /// `None` for a directory.
    pub objects: Option<Vec<StoredObject>>,
}

impl FoundPlace {
    fn new(repository: &Name, directory: PathBuf, objects: Option<Vec<StoredObject>>) -> Self {
        Self { place: Arc::new(ModelLocation { repository: repository.clone(), directory }), objects }
    }
}

/// The expected layout of a repository, for an operator whose repository differs.
const EXPECTED: &str = "a repository has a directory for each model, with a directory for each version: \
                        <repository>/<model>/<version>/<model file>";

/// Lists the repositories. `remote` has the listings of the object stores. Hidden directories and `lost+found` are not
/// models (M-W14).
pub fn list(
    repositories: &Repositories,
    mut remote: BTreeMap<Name, Result<Arc<RemoteModels>, Error>>,
) -> FoundPlaces {
    let mut found = FoundPlaces::default();
    for (name, repository) in &repositories.known {
        let listed = match &repository.source {
            RepositorySource::Directory(path) => {
                if let Ok(metadata) = fs::metadata(path) {
                    found.repositories.insert(name.clone(), stamps::directory(&metadata));
                }
                let mut ignored = Vec::new();
                let listed = list_directory(name, path, &mut found.warnings, &mut ignored);
                found.warnings.append(&mut ignored);
                listed
            }
            RepositorySource::Remote(_) => match remote.remove(name) {
                Some(listed) => listed.map(|models| list_objects(name, models, &mut found.warnings)),
                None => Err(Error::internal(format!("'{name}' was not listed"))),
            },
        };
        match listed {
            Err(error) => found.unreadable.push((name.clone(), error)),
            Ok(places) => {
                for place in places {
                    for model in repositories.models_in(name, &file_name(&place.place.directory)) {
                        found.models.entry(model).or_default().push(place.clone());
                    }
                }
            }
        }
    }
    found
}

/// Lists the models of a repository. Describes in `ignored` the directories that are no models because of their names.
pub(crate) fn list_directory(
    name: &Name,
    path: &Path,
    warnings: &mut Vec<String>,
    ignored: &mut Vec<String>,
) -> Result<Vec<FoundPlace>, Error> {
    let directories = subdirectories(path, warnings, ignored)?;
    warnings.extend(unlike_a_repository(path, &names(&directories)));
    Ok(directories.into_iter().map(|directory| FoundPlace::new(name, directory, None)).collect())
}

fn list_objects(url: &Name, models: Arc<RemoteModels>, warnings: &mut Vec<String>) -> Vec<FoundPlace> {
    let is_version = |name: &String| matches!(version_directory(name), VersionDirectory::Version(_));
    if models.is_empty() {
        warnings.push(format!("the model repository '{url}' has no models: {EXPECTED}"));
    } else if models.keys().all(is_version) {
        let seen: Vec<_> = models.keys().map(String::as_str).collect();
        let seen = seen.join(", ");
        warnings.push(format!(
            "the model repository '{url}' looks like a model (it has {seen}): name the path above it; {EXPECTED}"
        ));
    }
    let models = Arc::unwrap_or_clone(models);
    let models = models.into_iter().filter(|(name, _)| {
        let warning = ignored_by_name(name, &format!("{url}/{name}"));
        let is_model = warning.is_none();
        warnings.extend(warning);
        is_model
    });
    models.map(|(model, objects)| FoundPlace::new(url, model_url(url, &model), Some(objects))).collect()
}

/// The places of the models of a name. `remote` has the objects that each object store has of it.
///
/// # Errors
/// A repository that cannot be read, if no other one has the model.
pub fn find(
    repositories: &Repositories,
    mut remote: BTreeMap<Name, Result<Vec<StoredObject>, Error>>,
    name: &str,
) -> Result<BTreeMap<ModelKey, Vec<FoundPlace>>, Error> {
    let mut found: BTreeMap<ModelKey, Vec<FoundPlace>> = BTreeMap::new();
    let mut failure = None;
    for (repository_name, repository) in &repositories.known {
        let Some(directory) = repositories.directory_of(repository_name, name) else { continue };
        let place = match &repository.source {
            RepositorySource::Directory(path) => find_directory(repository_name, path.join(directory)),
            RepositorySource::Remote(_) => {
                let objects = remote.remove(repository_name).unwrap_or_else(|| Ok(Vec::new()));
                objects.map(|objects| {
                    let place = model_url(repository_name, directory);
                    (!objects.is_empty()).then(|| FoundPlace::new(repository_name, place, Some(objects)))
                })
            }
        };
        match place {
            Ok(Some(place)) => {
                found.entry(repositories.key(repository_name, name)).or_default().push(place);
            }
            Ok(None) => {}
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if found.is_empty() => Err(error),
        Some(_) | None => Ok(found),
    }
}

fn find_directory(repository: &Name, directory: PathBuf) -> Result<Option<FoundPlace>, Error> {
    match fs::metadata(&directory) {
        Ok(metadata) if metadata.is_dir() => Ok(Some(FoundPlace::new(repository, directory, None))),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::internal(format!("failed to open {}: {error}", directory.display()))),
    }
}

/// Why a directory with these subdirectories does not look like a repository, if it does not.
fn unlike_a_repository(repository: &Path, directories: &[String]) -> Option<String> {
    let without_models = || {
        let (place, seen) = (repository.display(), contents(repository));
        format!("the model repository '{place}' has no models ({seen}): {EXPECTED}")
    };
    like_a_model(repository, directories).or_else(|| directories.is_empty().then(without_models))
}

/// Why a directory with these subdirectories looks like a model, if it does.
pub(crate) fn like_a_model(repository: &Path, directories: &[String]) -> Option<String> {
    let is_version = |name: &String| matches!(version_directory(name), VersionDirectory::Version(_));
    let has_config = repository.join("config.pbtxt").is_file();
    if !has_config && (directories.is_empty() || !directories.iter().all(is_version)) {
        return None;
    }
    let place = repository.display();
    let seen = if has_config { "config.pbtxt".to_owned() } else { directories.join(", ") };
    let above = repository.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let above = above.map(|above| format!(" '{}'", above.display())).unwrap_or_default();
    Some(format!(
        "the model repository '{place}' looks like a model (it has {seen}): name the directory above it{above}; {EXPECTED}"
    ))
}

/// The text about a model's directory without version directories. It is shown as `shown`.
pub fn without_versions(directory: &Path, shown: &Path) -> String {
    let (place, seen) = (shown.display(), contents(directory));
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

/// The directories below `repository` that may be models, by name. Describes in `warnings` what cannot be read, and in
/// `ignored` the directories that are no models because of their names.
fn subdirectories(
    repository: &Path,
    warnings: &mut Vec<String>,
    ignored: &mut Vec<String>,
) -> Result<Vec<PathBuf>, Error> {
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
            Ok(metadata) if metadata.is_dir() => {
                match ignored_by_name(&file_name(&path), &path.display().to_string()) {
                    Some(text) => ignored.push(text),
                    None => found.push(path),
                }
            }
            Ok(_) => warnings.extend(loose_model(repository, &path)),
            Err(error) => {
                warnings.push(format!("ignore '{}' in the model repository: {error}", path.display()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The warning about a file that is probably a model without its directories.
fn loose_model(repository: &Path, file: &Path) -> Option<String> {
    let extension = file.extension()?;
    let mut formats = MODEL_FORMATS.iter().filter(|format| format.is_known_anywhere);
    let format = formats.find(|format| extension == format.extension())?;
    let name = file.file_stem()?.to_string_lossy().into_owned();
    let place = repository.join(name).join("1").join(format.filename);
    Some(format!(
        "ignore file '{}' in the model repository: move it to '{}' to serve it as a model",
        file.display(),
        place.display()
    ))
}

/// The warning about a directory that is not a model because of its name.
fn ignored_by_name(name: &str, shown: &str) -> Option<String> {
    match name {
        name if name.starts_with('.') => {
            Some(format!("ignore hidden directory '{shown}' in the model repository"))
        }
        "lost+found" => Some(format!("ignore directory '{shown}' in the model repository")),
        _ => None,
    }
}

/// The versions in a model's directory. None if it cannot be read.
pub fn versions(directory: &Path) -> Vec<i64> {
    let entries = entries(directory).unwrap_or_default();
    let version = |entry: FileEntry| match version_directory(&entry.name) {
        VersionDirectory::Version(version) if entry.is_directory => Some(version),
        VersionDirectory::Version(_) | VersionDirectory::Ignored(_) => None,
    };
    entries.into_iter().filter_map(version).collect()
}

/// The entries of a directory, by name. Follows links. An entry whose type cannot be read counts as a file.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<FileEntry>> {
    let mut found = fs::read_dir(directory)?
        .map(|entry| {
            let path = entry?.path();
            Ok(FileEntry { name: file_name(&path), is_directory: path.is_dir() })
        })
        .collect::<io::Result<Vec<_>>>()?;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The last parts of paths.
pub(crate) fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| file_name(path)).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repositories(paths: &[PathBuf]) -> Repositories {
        Repositories::new(paths.to_vec(), false, None).unwrap()
    }

    #[test]
    fn models_are_directories_and_belong_to_one_repository() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["a/twice", "a/once", "a/.git", "a/lost+found", "b/twice"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("a/file"), "").unwrap();
        fs::write(root.path().join("a/loose.onnx"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("a/dangling")).unwrap();
        let listing = list(&repositories(&[root.path().join("a"), root.path().join("b")]), BTreeMap::new());
        let found = listing.models.iter().map(|(key, directories)| (key.name.as_str(), directories.len()));
        assert_eq!(found.collect::<Vec<_>>(), [("once", 1), ("twice", 2)]);
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
                format!(
                    "ignore file '{}' in the model repository: move it to '{}' to serve it as a model",
                    place("loose.onnx"),
                    place("loose/1/model.onnx")
                ),
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
        let warnings =
            |name: &str| list(&repositories(&[root.path().join(name)]), BTreeMap::new()).warnings.join("|");
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
            let expected = format!("the model repository '{}' {text}", place.display());
            assert!(warning.split('|').any(|warning| warning.starts_with(&expected)), "{warning}");
        }
        assert_eq!(warnings("good"), "");
        let model = root.path().join("flat");
        assert_eq!(
            without_versions(&model, &model),
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
            without_versions(&model, &model)
                .contains("(found f00, f01, f02, f03, f04, f05, f06, f07 and 4 more)")
        );
    }

    #[test]
    fn a_repository_that_is_no_directory_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = |path: &Path| {
            list(&repositories(&[path.into()]), BTreeMap::new()).unreadable.remove(0).1.to_string()
        };
        assert_eq!(error(&file), "repository path is not a valid directory");
        let missing = root.path().join("missing");
        assert_eq!(error(&missing), format!("failed to stat file {}", missing.display()));
    }
}
