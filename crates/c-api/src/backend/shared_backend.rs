//! A backend as the engine uses it.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::backend::{Backend as BackendInterface, BackendModel, ModelSource};
use vocabulary::Error;

use super::{
    backend_handle::{Backend, LibraryOpening},
    execute::InstanceFunctions,
    opened_model::OpenedModel,
};
use crate::plugin::Library;

/// A backend whose library is open. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SharedBackend {
    backend: Arc<Backend>,
    functions: InstanceFunctions,
}

impl SharedBackend {
    /// Initializes a library as a backend.
    ///
    /// # Errors
    /// The error of the library, or NOT_FOUND if it is no backend.
    pub(super) fn start(library: Arc<Library>, opening: LibraryOpening<'_>) -> Result<Self, Error> {
        let functions = InstanceFunctions::of(&library, opening.library)?;
        Ok(Self { backend: Backend::start(library, opening)?, functions })
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }
}

impl BackendInterface for SharedBackend {
    fn name(&self) -> &str {
        self.backend.name()
    }

    fn location(&self) -> String {
        self.backend.library_path().display().to_string()
    }

    fn settings_name(&self) -> &str {
        self.backend.settings_name()
    }

    fn directories(&self) -> Vec<PathBuf> {
        let own = self.backend.directory().to_owned();
        let runner = self.backend.library_path().parent().filter(|runner| *runner != own).map(Path::to_owned);
        [own].into_iter().chain(runner).collect()
    }

    fn preferred_groups(&self) -> Vec<proto::ModelInstanceGroup> {
        self.backend.preferred_groups().to_vec()
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(OpenedModel::open(&self.backend, self.functions, source)?))
    }
}
