//! The code that the workers of a model run.
use std::path::{Path, PathBuf};

use inference::backend::ModelSource;
use vocabulary::Error;

/// See the module documentation.
#[derive(Debug)]
pub(crate) enum ModelCode {
    /// A file of the model, or of a backend in Python, which has a directory.
    File { file: PathBuf, backend_directory: Option<PathBuf> },
    /// Modules of the server, by name, with their sources. The first one has the model's class.
    Modules(&'static [(&'static str, &'static str)]),
}

/// The file of a model, and of a backend in Python.
pub(crate) const DEFAULT_FILE: &str = "model.py";

impl ModelCode {
    /// Finds the file of a model. `backend_directory` has the file of a backend that is written in Python.
    ///
    /// # Errors
    /// There is no such file.
    pub(crate) fn in_files(source: &ModelSource, backend_directory: Option<PathBuf>) -> Result<Self, Error> {
        Ok(Self::File { file: model_file(source, backend_directory.as_deref())?, backend_directory })
    }

    /// The path of the code. Modules of the server have one that begins with `<nereid>`.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::File { file, .. } => file.clone(),
            Self::Modules(modules) => {
                PathBuf::from(format!("<nereid>/{}.py", modules.first().map_or("", |module| module.0)))
            }
        }
    }

    /// The directory of a backend that is written in Python.
    pub(crate) fn backend_directory(&self) -> Option<&Path> {
        match self {
            Self::File { backend_directory, .. } => backend_directory.as_deref(),
            Self::Modules(_) => None,
        }
    }

    /// What a worker needs besides the modules that each has.
    pub(crate) fn modules(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::File { .. } => &[],
            Self::Modules(modules) => modules,
        }
    }
}

/// The file with the class of a model in Python, which may be that of its backend.
///
/// # Errors
/// There is no such file.
pub(crate) fn model_file(source: &ModelSource, backend_directory: Option<&Path>) -> Result<PathBuf, Error> {
    let declared = &source.declared.default_model_filename;
    let name = if declared.is_empty() { DEFAULT_FILE } else { declared };
    let of_backend =
        backend_directory.map(|directory| directory.join(DEFAULT_FILE)).filter(|file| file.is_file());
    if !name.ends_with(".py") {
        // The model of a backend may be any file.
        let text = format!("Model name must end with '.py'. Model name is \"{name}\".");
        return of_backend.ok_or_else(|| Error::internal(text));
    }
    let file = source.version_directory.join(name);
    if file.is_file() {
        return Ok(file);
    }
    of_backend.ok_or_else(|| Error::internal(format!("Python model file not found in '{}'", file.display())))
}
