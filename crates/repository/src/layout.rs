//! The files of repositories, for programs that look at models without serving them. The server reads models with the
//! same functions.
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use config::{ConfigErrors, FileEntry, ModelConfig, Scheduling, VersionDirectory, rule, version_directory};
use host::configurable_bytes;
use inference::{
    ReadableMemory, RequestValidator, WarmupSample,
    backend::{Backend, ModelSource, SequenceState},
};
use vocabulary::{Error, Name};

use super::{
    config_file::{self, unreadable},
    files, repositories, scan, strategy,
};
use crate::regular_file;

/// The first bytes of a shared library.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// The models of a repository in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryModels {
    /// The directories of the models, by name.
    pub directories: Vec<PathBuf>,
    /// What stands against the repository: entries that cannot be read, or that it does not look like one. The server logs
    /// this.
    pub warnings: Vec<String>,
    /// The texts about directories that are no models because of their names: hidden ones, and `lost+found`. The server
    /// logs them, too.
    pub ignored: Vec<String>,
    /// Why the directory is a model and no repository: it looks like one, and no server would find a version of a model in
    /// `directories`.
    pub is_model: Option<String>,
}

/// Lists the models of a repository.
///
/// # Errors
/// The directory does not exist, or cannot be read.
pub fn models(repository: &Path) -> Result<RepositoryModels, Error> {
    let (mut warnings, mut ignored) = (Vec::new(), Vec::new());
    let name = repositories::directory_name(repository);
    let places = scan::list_directory(&name, repository, &mut warnings, &mut ignored)?;
    let directories: Vec<_> = places.into_iter().map(|found| found.place.directory.clone()).collect();
    let has_versions = directories.iter().any(|directory| !scan::versions(directory).is_empty());
    let is_model = scan::like_a_model(repository, &scan::names(&directories)).filter(|_| !has_versions);
    Ok(RepositoryModels { directories, warnings, ignored, is_model })
}

/// The version directories of a model with the files in each, and the warnings about other directories.
///
/// # Errors
/// A directory cannot be read.
#[expect(clippy::type_complexity, reason = "the map is the one of ModelLayout")]
pub fn versions(directory: &Path) -> Result<(BTreeMap<i64, Vec<FileEntry>>, Vec<String>), Error> {
    let (mut versions, mut warnings) = (BTreeMap::new(), Vec::new());
    for entry in entries(directory)?.into_iter().filter(|entry| entry.is_directory) {
        match version_directory(&entry.name) {
            VersionDirectory::Version(version) => {
                versions.insert(version, entries(&directory.join(&entry.name))?);
            }
            VersionDirectory::Ignored(warning) => warnings.extend(warning),
        }
    }
    Ok((versions, warnings))
}

/// The entries of a directory, by name. Follows links.
///
/// # Errors
/// The directory cannot be read.
pub fn entries(directory: &Path) -> Result<Vec<FileEntry>, Error> {
    scan::entries(directory).map_err(|error| unreadable(directory, &error))
}

/// The text about a model's directory without version directories.
pub fn without_versions(directory: &Path) -> String {
    scan::without_versions(directory, directory)
}

/// The file with a model's configuration: `configs/<name>.pbtxt` if there is one, otherwise `config.pbtxt`, which may be
/// missing.
pub fn config_path(directory: &Path, config_name: Option<&str>) -> PathBuf {
    config_file::path_in(directory, config_name)
}

/// The content of a file of a model. Follows links.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    regular_file::read(path)
}

/// Whether a file is written by editors, by Python or by file systems on their own.
pub fn is_by_product(name: &str) -> bool {
    lifecycle::is_by_product(name)
}

/// Reads the labels, the initial states and the samples for warm-up that a configuration names. Adds a problem for each
/// kind that cannot be used.
pub fn check_files(config: &mut ModelConfig, directory: &Path, errors: &mut ConfigErrors) {
    errors.begin(rule::FILE_PATH);
    if let Err(error) = files::read(config, directory) {
        let is_label = config.outputs.iter().any(|output| output.label_filename.is_some());
        errors.push_error(if is_label { "output" } else { "sequence_batching" }, &error);
        return;
    }
    errors.begin(rule::STATE);
    if let Scheduling::Sequence(sequence) = &config.scheduling
        && let Err(error) = SequenceState::first_values(config, sequence, configurable_bytes())
    {
        errors.push_error("sequence_batching", &error);
        return;
    }
    errors.begin(rule::WARMUP);
    if config.warmups.is_empty() {
        return;
    }
    let validator = RequestValidator::new(config, ReadableMemory::default());
    let files = files::of_warmups(directory);
    if let Err(error) = WarmupSample::build_all(config, &validator, &files, configurable_bytes()) {
        errors.push_error("model_warmup", &error);
    }
}

/// Looks at the library of a model's own batching strategy, if it has one. Does not open it. `backend` is the backend of
/// the model; `None` if it is in a library.
///
/// # Errors
/// The configuration names a library that the model must not have, or the file is not a shared library.
pub fn check_batching_library(
    backend: Option<&dyn Backend>,
    source: &ModelSource,
    config: &ModelConfig,
) -> Result<(), Error> {
    let Some(path) = strategy::library(backend, source, config)? else { return Ok(()) };
    let failed = |why: &dyn fmt::Display| {
        Error::unavailable(format!("unable to load shared library: {}: {why}", path.display()))
    };
    if !path.is_file() {
        return Err(failed(&"it is not a regular file"));
    }
    let mut magic = [0; ELF_MAGIC.len()];
    match File::open(&path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == ELF_MAGIC => Ok(()),
        Ok(()) => Err(failed(&"invalid ELF header")),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(failed(&"file too short")),
        Err(error) => Err(failed(&error)),
    }
}

/// What a backend gets to look at a version of a model outside of a server.
pub fn model_source(
    name: &Name,
    version: i64,
    directory: &Path,
    declared: proto::ModelConfig,
) -> ModelSource {
    ModelSource {
        name: name.clone(),
        version,
        model_directory: directory.to_path_buf(),
        version_directory: directory.join(version.to_string()),
        declared: Arc::new(declared),
        settings: BTreeMap::new(),
        inferer: None,
        host_policies: Arc::default(),
    }
}
