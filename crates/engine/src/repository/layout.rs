//! The files of repositories, for programs that look at models without serving them. The server reads models with the
//! same functions.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::{
    Error, Name,
    backend::{Backend, ModelSource},
    config::{ConfigErrors, FileEntry, ModelConfig, VersionDirectory, rule, version_directory},
};

use super::{
    config_file::{self, unreadable},
    files, repositories, scan, strategy,
};
use crate::{
    check::{ReadableMemory, RequestValidator},
    executor::prepare_warmups,
};

/// The models of a repository in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryModels {
    /// The directories of the models, by name.
    pub directories: Vec<PathBuf>,
    /// What the server would log about the repository: entries that it ignores, or that it does not look like one.
    pub warnings: Vec<String>,
}

/// Lists the models of a repository.
///
/// # Errors
/// The directory does not exist, or cannot be read.
pub fn models(repository: &Path) -> Result<RepositoryModels, Error> {
    let mut warnings = Vec::new();
    let name = repositories::directory_name(repository);
    let places = scan::list_directory(&name, repository, &mut warnings)?;
    let directories = places.into_iter().map(|found| found.place.directory.clone()).collect();
    Ok(RepositoryModels { directories, warnings })
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
    errors.begin(rule::WARMUP);
    if config.warmups.is_empty() {
        return;
    }
    let validator = RequestValidator::new(config, ReadableMemory::default());
    if let Err(error) = prepare_warmups(config, &validator, directory) {
        errors.push_error("model_warmup", &error);
    }
}

/// The library of a model's own batching strategy, if it has one. `backend` is the backend of the model.
///
/// # Errors
/// The configuration names a library that the model must not have, or that does not exist.
pub fn batching_library(
    backend: &dyn Backend,
    source: &ModelSource,
    config: &ModelConfig,
) -> Result<Option<PathBuf>, Error> {
    strategy::library(backend, source, config)
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
