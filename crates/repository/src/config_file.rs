//! Reads the configurations of models.
use std::{
    io,
    path::{Path, PathBuf},
};

use config::{Completion, ConfigSource, GivenConfig, read};
use inference::repository::StoredObject;
use lifecycle::{NoVersion, NoVersionCause, PlanFailure};
use vocabulary::Error;

use super::given::LoadParameters;
use crate::regular_file;

/// Why a model has no plan.
pub struct PlanError {
    /// What the index of the models shows.
    pub cause: NoVersionCause,
    /// The error of the load.
    pub error: Error,
}

impl From<Error> for PlanError {
    fn from(error: Error) -> Self {
        Self { cause: NoVersionCause::Refused, error }
    }
}

impl From<PlanError> for PlanFailure {
    fn from(PlanError { cause, error }: PlanError) -> Self {
        Self { no_version: NoVersion { cause, reason: error.with_code() }, error }
    }
}

/// Finds and reads the file with a model's configuration.
pub struct ConfigFileReader {
    completion: Completion,
    /// `configs/<name>.pbtxt` takes precedence (`--model-config-name`).
    config_name: Option<String>,
}

impl ConfigFileReader {
    /// A reader. With `auto_complete`, configurations may leave out what the backend knows.
    pub fn new(auto_complete: bool, config_name: Option<String>) -> Self {
        let completion = if auto_complete { Completion::Auto } else { Completion::Strict };
        Self { completion, config_name }
    }

    /// Whether configurations may leave something open.
    pub fn completion(&self) -> Completion {
        self.completion
    }

    /// The configuration of a request, or else of a directory, which errors show as `shown`.
    pub fn given(
        &self,
        directory: &Path,
        shown: &Path,
        brought: &LoadParameters,
    ) -> Result<GivenConfig, PlanError> {
        match &brought.config {
            Some(json) => Ok(read(ConfigSource::Override(json), self.completion).map_err(Error::from)?),
            None if !brought.files.is_empty() => {
                let text = "Load parameter 'config' must be specified for model file override";
                Err(Error::invalid(text).into())
            }
            None => self.read(directory, shown).map_err(|error| {
                let is_there = self.config_path(directory).exists();
                let cause = if is_there { NoVersionCause::Refused } else { NoVersionCause::NoConfiguration };
                PlanError { cause, error }
            }),
        }
    }

    /// The path of a model's configuration below the model's directory.
    pub fn config_name(&self, directory: &Path) -> String {
        let path = self.config_path(directory);
        path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned()
    }

    /// The same for a model in an object store.
    pub fn config_name_of(&self, objects: &[StoredObject]) -> String {
        let custom = self.config_name.as_ref().map(|name| format!("configs/{name}.pbtxt"));
        let is_there = |name: &String| objects.iter().any(|object| object.path == *name);
        custom.filter(is_there).unwrap_or_else(|| "config.pbtxt".to_owned())
    }

    /// The configuration in a model's directory, which errors show as `shown`.
    pub fn read(&self, directory: &Path, shown: &Path) -> Result<GivenConfig, Error> {
        let path = self.config_path(directory);
        let content = match regular_file::read(&path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let shown = shown.join(path.strip_prefix(directory).unwrap_or(&path));
        let source = match &content {
            Some(content) => ConfigSource::Text { path: &shown, content },
            None => ConfigSource::Missing(&shown),
        };
        Ok(read(source, self.completion)?)
    }

    /// The file with a model's configuration, if there is one.
    fn config_path(&self, directory: &Path) -> PathBuf {
        path_in(directory, self.config_name.as_deref())
    }
}

/// The file with a model's configuration. `configs/<config_name>.pbtxt` takes precedence, if it exists.
pub(crate) fn path_in(directory: &Path, config_name: Option<&str>) -> PathBuf {
    let custom = config_name.map(|name| directory.join("configs").join(format!("{name}.pbtxt")));
    custom.filter(|path| path.is_file()).unwrap_or_else(|| directory.join("config.pbtxt"))
}

/// The error about a file or a directory that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::internal(format!("failed to open {}: {error}", path.display()))
}
